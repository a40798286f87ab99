"""Calls with more arguments than a frame takes, and calls that cannot be handed to a worker."""

import contextlib
import os
import resource

import pytest
from conftest import ready

import hoplo

NODE = {"num_cpus": 2}

NUMBERS = 3000


@hoplo.remote
def total(*args, **kwargs):
    return sum(args) + sum(kwargs.values())


@hoplo.remote
def echo(*args, **kwargs):
    return args, kwargs


@hoplo.remote
def one(value):
    return value


def test_three_thousand_refs_as_arguments_panicked_and_wedged_the_session():
    refs = [hoplo.put(i) for i in range(NUMBERS)]
    assert hoplo.get(total.remote(*refs), timeout=60) == sum(range(NUMBERS))
    # Also of results that are not there yet, and each of them twice.
    pending = [one.remote(i) for i in range(NUMBERS // 2)]
    assert hoplo.get(total.remote(*pending, *pending), timeout=60) == 2 * sum(range(NUMBERS // 2))


def test_twenty_thousand_numbers_as_arguments():
    assert hoplo.get(total.remote(*range(20_000)), timeout=60) == sum(range(20_000))


def test_three_thousand_keywords_with_refs():
    kwargs = {f"k{i}": hoplo.put(i) for i in range(NUMBERS)}
    assert hoplo.get(total.remote(**kwargs), timeout=60) == sum(range(NUMBERS))


def test_a_keyword_of_200_kilobytes():
    name = "k" * 200_000
    assert hoplo.get(echo.remote(1, **{name: 2}), timeout=60) == ((1,), {name: 2})


def test_values_of_every_size_among_packed_arguments():
    sizes = [0, 10, 4_000, 5_000, 90_000, 120_000, 2_000_000] * 20
    values = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    inner = hoplo.put("inside")
    args, _ = hoplo.get(echo.remote(*values, [inner], inner), timeout=60)
    assert list(args[: len(values)]) == values
    assert hoplo.get(args[-2][0]) == "inside"
    assert args[-1] == "inside"


def test_a_method_and_a_constructor_take_as_many():
    @hoplo.remote
    class Adder:
        def __init__(self, *refs):
            self.start = sum(refs)

        def add(self, *refs):
            return self.start + sum(refs)

    refs = [hoplo.put(1) for _ in range(NUMBERS)]
    adder = Adder.remote(*refs)
    assert hoplo.get(adder.add.remote(*refs), timeout=60) == 2 * NUMBERS


def test_a_failed_ref_among_packed_arguments_fails_the_call():
    @hoplo.remote
    def fails():
        raise KeyError("no")

    refs = [hoplo.put(i) for i in range(NUMBERS)]
    with pytest.raises(KeyError):
        hoplo.get(total.remote(*refs, fails.remote()), timeout=60)


def test_options_too_large_for_a_frame_are_refused_with_what_to_do():
    class Heavy(Exception):
        data = os.urandom(200_000)

    with pytest.raises(ValueError, match="classes of"):
        one.options(retry_exceptions=[Heavy]).remote(1)
    assert hoplo.get(one.remote(2), timeout=60) == 2


def test_no_descriptor_for_a_new_workers_channel_is_an_error_of_that_call():
    # Of an environment of their own: none gets a worker that the tests before have used.
    @hoplo.remote(runtime_env={"env_vars": {"FRESH": "1"}})
    class Fresh:
        def name(self):
            return "fresh"

    known, fresh = Fresh.remote(), Fresh.remote()
    assert hoplo.get(known.name.remote(), timeout=60) == "fresh"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        refs = [fresh.name.remote(), known.name.remote()]
        assert ready(refs)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(hoplo.exceptions.HoploError, match="ulimit -n"):
        hoplo.get(refs[0])
    assert hoplo.get([refs[1], fresh.name.remote()], timeout=60) == ["fresh"] * 2
