"""The joblib backend."""

import os

import pytest

import hoplo

joblib = pytest.importorskip("joblib")

from joblib import Parallel, delayed, parallel_config  # noqa: E402

from hoplo.util.joblib import register_hoplo  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def backend():
    register_hoplo()
    with parallel_config("hoplo"):
        yield


def test_an_error_of_a_call():
    with pytest.raises(ZeroDivisionError):
        Parallel(n_jobs=2)(delayed(divmod)(i, 0) for i in range(20))
    with pytest.raises(ValueError, match="no meaning"):
        Parallel(n_jobs=0)(delayed(abs)(i) for i in range(2))


@pytest.mark.parametrize("n_jobs", [None, 1, 3, -1])
def test_results_in_order(n_jobs):
    assert Parallel(n_jobs=n_jobs)(delayed(pow)(i, 2) for i in range(50)) == [
        i * i for i in range(50)
    ]


def test_calls_run_in_workers():
    pids = Parallel(n_jobs=2)(delayed(os.getpid)() for _ in range(10))
    assert os.getpid() not in pids


def test_results_as_they_come():
    values = Parallel(n_jobs=2, return_as="generator_unordered")(
        delayed(pow)(i, 2) for i in range(9)
    )
    assert sorted(values) == [i * i for i in range(9)]


def test_all_cpus():
    assert joblib.effective_n_jobs(-1) == int(hoplo.cluster_resources()["CPU"])
