"""Names and keys of any size: no message is so large that its process is ended for it."""

import pytest

import hoplo
from hoplo import _core
from hoplo.exceptions import HoploError

LARGE = "x" * (140 << 20)
"""More than one message may have."""


@hoplo.remote
def one():
    return 1


@pytest.fixture(autouse=True)
def goes_on():
    yield
    assert hoplo.get(one.remote(), timeout=60) == 1


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({LARGE: 1}, "512 characters"),
        ({f"r{number}": 0.001 for number in range(257)}, "256 names or less, not 257"),
    ],
)
def test_resources_with_names_that_fit_into_no_message_ended_the_program(resources, text):
    with pytest.raises(ValueError, match=text):
        one.options(resources=resources)


@pytest.mark.parametrize("name", ["é" * 1000, LARGE[: 60 << 20]], ids=["long", "very long"])
def test_an_actor_of_a_class_with_a_long_name_ended_the_program(name):
    actor = hoplo.remote(type(name, (), {"f": lambda self: 3})).remote()
    assert hoplo.get(actor.f.remote(), timeout=60) == 3


def test_a_function_with_a_name_that_fits_into_no_message_ended_its_worker():
    def function():
        return 3

    function.__qualname__ = LARGE[: 60 << 20]
    assert hoplo.get(hoplo.remote(max_retries=0)(function).remote(), timeout=60) == 3
    function.__qualname__ = LARGE
    with pytest.raises(ValueError, match="too large to be sent to workers") as refused:
        hoplo.remote(function).remote()
    assert len(str(refused.value)) < 1000


def test_an_actor_whose_methods_fit_into_no_message_ended_the_program():
    methods = {"m" * 200 + str(number): lambda self: 1 for number in range(6000)}
    with pytest.raises(ValueError, match=r"methods and concurrency groups of Many take \d+ bytes"):
        hoplo.remote(type("Many", (), methods)).remote()


def test_a_key_or_value_that_fits_into_no_message_ended_the_program():
    large = LARGE.encode()
    with pytest.raises(HoploError, match="the value has 146800640 bytes, at most 8388608"):
        _core.kv_put(b"k", large)
    for refused in (_core.kv_get, _core.kv_delete, _core.kv_keys):
        with pytest.raises(HoploError, match="the key has 146800640 bytes, at most 1024"):
            refused(large)


def test_a_question_that_fits_into_no_message_ended_the_program():
    with pytest.raises(RuntimeError, match="the question has 146800643 bytes, and may have 32768"):
        _core.query("why", LARGE)
