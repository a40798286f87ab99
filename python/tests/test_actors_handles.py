"""Actors: handles as values, and errors of arguments, constructors and methods."""

from __future__ import annotations

import pickle
import threading

import pytest
from conftest import command

import hoplo
from hoplo.exceptions import ActorDiedError, SerializationError, TaskError


@hoplo.remote
class Counter:
    def __init__(self, value=0):
        self.value = value

    def add(self, amount=1):
        self.value += amount
        return self.value

    def get(self):
        return self.value


def test_handles_go_anywhere(tmp_path):
    @hoplo.remote
    def use(handle, inside):
        assert inside["handle"] == handle
        return hoplo.get(handle.add.remote(10))

    @hoplo.remote
    class User:
        def __init__(self, handle):
            self.handle = handle

        def use(self):
            return hoplo.get(self.handle.add.remote(100))

        def give(self):
            return [self.handle]

    counter = Counter.remote()
    assert hoplo.get(use.remote(counter, {"handle": counter})) == 10
    user = User.remote(counter)
    assert hoplo.get(user.use.remote()) == 110
    (same,) = hoplo.get(user.give.remote())
    assert same == counter
    assert hash(same) == hash(counter)
    assert hoplo.get(hoplo.get(hoplo.put(same)).add.remote(1000)) == 1110

    @hoplo.remote
    def captured():
        return hoplo.get(counter.get.remote())

    assert hoplo.get(captured.remote()) == 1110


def test_a_task_returns_an_actor_that_outlives_it():
    @hoplo.remote
    def make():
        counter = Counter.remote(5)
        hoplo.get(counter.add.remote())
        return counter

    counter = hoplo.get(make.remote())
    assert hoplo.get(counter.get.remote()) == 6


def test_an_actor_knows_itself():
    @hoplo.remote
    class Self:
        def me(self):
            return hoplo.get_runtime_context().current_actor

        def ids(self):
            context = hoplo.get_runtime_context()
            return context.get_actor_id(), context.get_actor_name()

    actor = Self.options(name="selfish").remote()
    assert hoplo.get(actor.me.remote()) == actor
    assert hoplo.get(actor.ids.remote()) == (actor._actor_id, "selfish")


def test_handles_say_what_they_are_and_know_their_methods():
    counter = Counter.remote()
    assert "Counter" in repr(counter)
    assert "add" in dir(counter)
    with pytest.raises(AttributeError, match=r"no method 'ad'; did you mean 'add'"):
        counter.ad
    with pytest.raises(TypeError, match=r"\.remote\("):
        counter.add()
    with pytest.raises(TypeError, match=r"Counter\(\) makes no actor; call Counter.remote\(\)"):
        Counter()
    assert pickle.loads(pickle.dumps(counter)) == counter


def test_wrong_arguments_are_told_at_the_call():
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"add\(.*amount.*\) does not take these arguments"):
        counter.add.remote(1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'by'"):
        counter.add.remote(by=1)
    with pytest.raises(TypeError, match=r"Counter\(.*value.*\) does not take these arguments"):
        Counter.remote(1, 2)
    with pytest.raises(SerializationError, match=r"args\[0\]"):
        counter.add.remote(threading.Lock())
    assert hoplo.get(counter.get.remote()) == 0


# ------------------------------------------------------------------------------- errors


def test_a_method_that_raises_leaves_the_actor_alive():
    @hoplo.remote
    class Fragile:
        def fail(self, word):
            raise KeyError(word)

        def work(self):
            return "works"

    fragile = Fragile.remote()
    with pytest.raises(KeyError) as caught:
        hoplo.get(fragile.fail.remote("lost"))
    assert isinstance(caught.value, TaskError)
    assert caught.value.__cause__.args == ("lost",)
    assert "Fragile.fail" in str(caught.value)
    assert "raise KeyError(word)" in str(caught.value)
    assert hoplo.get(fragile.work.remote()) == "works"


def test_a_constructor_that_raises_is_told_by_every_call():
    @hoplo.remote
    class Stillborn:
        def __init__(self, path):
            raise FileNotFoundError(2, "no such model", path)

        def work(self):
            return 1

    actor = Stillborn.remote("model.bin")
    for _ in range(2):
        with pytest.raises(ActorDiedError) as caught:
            hoplo.get(actor.work.remote())
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert caught.value.__cause__.filename == "model.bin"
        assert "Stillborn" in str(caught.value)
        assert "no such model" in str(caught.value)


def test_a_ref_in_the_exception_of_a_constructor_was_lost_a_moment_later():
    @hoplo.remote
    class Stillborn:
        def __init__(self):
            raise LookupError("not among", hoplo.put("the models"))

        def work(self):
            return 1

    with pytest.raises(ActorDiedError, match=r"LookupError.*not among") as caught:
        hoplo.get(Stillborn.remote().work.remote())
    cause = caught.value.__cause__
    assert not isinstance(cause, LookupError), "it would hold a ref that nobody else holds"
    assert "not among" in str(cause)


def test_a_constructor_whose_argument_failed_never_runs():
    @hoplo.remote
    def broken():
        raise ZeroDivisionError("no input")

    actor = Counter.remote(broken.remote())
    with pytest.raises((ActorDiedError, ZeroDivisionError), match="no input"):
        hoplo.get(actor.get.remote())


def test_an_unpicklable_result_names_its_path():
    @hoplo.remote
    class Maker:
        def make(self):
            return {"deep": [threading.Lock()]}

    with pytest.raises(SerializationError, match=r"\['deep'\]\[0\]"):
        hoplo.get(Maker.remote().make.remote())


def test_an_unpicklable_class_is_told_when_it_is_created():
    lock = threading.Lock()

    @hoplo.remote
    class Guilty:
        def use(self):
            return lock

    with pytest.raises(SerializationError, match="lock"):
        Guilty.remote()


@pytest.mark.near
def test_a_handle_is_listed_like_an_object():
    counter = Counter.remote()
    assert hoplo.get(counter.get.remote()) == 0
    assert command("list", "objects").stdout.count("handle") == 0
