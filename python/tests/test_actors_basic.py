"""Actors: state, arguments, results, inheritance, options."""

from __future__ import annotations

import os

import pytest
from conftest import eventually

import hoplo


@hoplo.remote
class Counter:
    """Counts."""

    def __init__(self, value=0):
        self.value = value

    def add(self, amount=1):
        self.value += amount
        return self.value

    def get(self):
        return self.value

    def pid(self):
        return os.getpid()

    @hoplo.method(num_returns=2)
    def both(self):
        return self.value, -self.value

    def nothing(self):
        self.value = "nothing was here"


def test_state_stays_and_calls_keep_their_order():
    counter = Counter.remote(10)
    assert hoplo.get([counter.add.remote() for _ in range(100)]) == list(range(11, 111))
    assert hoplo.get(counter.add.remote(amount=5)) == 115
    assert hoplo.get(counter.get.remote()) == 115


def test_each_actor_is_a_process_of_its_own():
    actors = [Counter.remote() for _ in range(3)]
    pids = hoplo.get([actor.pid.remote() for actor in actors])
    assert len({*pids, os.getpid()}) == 4
    assert pids == hoplo.get([actor.pid.remote() for actor in actors])


def test_a_constructor_gets_refs_by_value_and_keyword_arguments():
    counter = Counter.remote(value=hoplo.put(41))
    assert hoplo.get(counter.add.remote(hoplo.put(1))) == 42


def test_a_constructor_without_arguments_and_no_constructor():
    @hoplo.remote
    class Plain:
        kind = "plain"

        def get(self):
            return self.kind

    assert hoplo.get(Plain.remote().get.remote()) == "plain"
    with pytest.raises(TypeError, match=r"Plain.* does not take these arguments"):
        Plain.remote(1)


def test_several_returns_and_none():
    counter = Counter.remote(3)
    plus, minus = counter.both.remote()
    assert (hoplo.get(plus), hoplo.get(minus)) == (3, -3)
    assert counter.nothing.options(num_returns=0).remote() is None
    assert hoplo.get(counter.get.remote()) == "nothing was here"
    three = counter.get.options(num_returns=1).remote()
    assert isinstance(three, hoplo.ObjectRef)


def test_the_wrong_number_of_returned_values_is_the_callers_error():
    with pytest.raises(ValueError, match="2"):
        hoplo.get(Counter.remote().get.options(num_returns=2).remote())


def test_large_arguments_and_results_go_through_the_store():
    numpy = pytest.importorskip("numpy")

    @hoplo.remote
    class Holder:
        def keep(self, array):
            self.array = array
            return int(array.sum())

        def give(self):
            return self.array

    holder = Holder.remote()
    array = numpy.arange(1_000_000)
    assert hoplo.get(holder.keep.remote(hoplo.put(array))) == int(array.sum())
    assert hoplo.get(holder.keep.remote(array)) == int(array.sum())
    back = hoplo.get(holder.give.remote())
    assert (back == array).all()
    assert not back.flags.writeable


def test_inheritance_from_plain_and_from_actor_classes():
    class Base:
        def name(self):
            return "base"

        def shared(self):
            return f"shared by {self.name()}"

    @hoplo.remote
    class Child(Base):
        def name(self):
            return f"child of {super().name()}"

    @hoplo.remote
    class GrandChild(Child):
        def name(self):
            return f"grandchild, {super().name()}"

    assert hoplo.get(Child.remote().shared.remote()) == "shared by child of base"
    assert hoplo.get(GrandChild.remote().shared.remote()) == ("shared by grandchild, child of base")


def test_static_class_and_special_methods():
    @hoplo.remote
    class Mixed:
        made = 0

        @staticmethod
        def double(x):
            return 2 * x

        @classmethod
        def make(cls):
            cls.made += 1
            return cls.made

        def __call__(self, x):
            return x + 1

        def __len__(self):
            return 7

    mixed = Mixed.remote()
    assert hoplo.get(mixed.double.remote(4)) == 8
    assert hoplo.get([mixed.make.remote(), mixed.make.remote()]) == [1, 2]
    assert hoplo.get(mixed.__call__.remote(1)) == 2
    assert hoplo.get(mixed.__len__.remote()) == 7


def test_options_of_a_class_change_a_copy():
    named = Counter.options(num_cpus=0.5)
    actor = named.remote(1)
    assert hoplo.get(actor.get.remote()) == 1
    held = eventually(lambda: 4 - hoplo.available_resources()["CPU"])
    assert held == pytest.approx(0.5)
    with pytest.raises(TypeError, match=r"did you mean 'max_restarts'"):
        Counter.options(max_restart=1)


def test_an_actor_that_asks_for_nothing_holds_nothing():
    many = [Counter.remote(i) for i in range(6)]  # more than there are CPUs
    assert hoplo.get([actor.get.remote() for actor in many]) == list(range(6))
    eventually(lambda: hoplo.available_resources().get("CPU") == 4, what="CPUs are free")


def test_a_class_from_main_and_one_defined_again():
    def make(word):
        @hoplo.remote
        class Speaker:
            def say(self):
                return word

        return Speaker

    first, second = make("first").remote(), make("second").remote()
    assert hoplo.get([first.say.remote(), second.say.remote()]) == ["first", "second"]


@pytest.mark.near
def test_environment_variables_of_an_actor(tmp_path):
    @hoplo.remote(runtime_env={"env_vars": {"HOPLO_LEVEL": "high"}})
    class Reader:
        def read(self):
            return os.environ.get("HOPLO_LEVEL"), os.getcwd()

    assert hoplo.get(Reader.remote().read.remote())[0] == "high"
    there = Reader.options(runtime_env={"working_dir": str(tmp_path)}).remote()
    assert hoplo.get(there.read.remote())[1] == str(tmp_path)


@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"max_concurrency": 2}])
def test_an_attribute_of_the_instance_hid_the_method_of_its_name(options):
    class Base:
        def inherited(self):
            return "inherited", self.size

    class Box(Base):
        def __init__(self):
            self.size = self.inherited = self.fixed = self.made = self.property_like = 7

        def size(self):
            return "size", self.__dict__["size"]

        @staticmethod
        def fixed():
            return "fixed"

        @classmethod
        def made(cls):
            return cls.__name__

    box = hoplo.remote(**options)(Box).remote()
    calls = [box.size.remote(), box.inherited.remote(), box.fixed.remote(), box.made.remote()]
    assert hoplo.get(calls) == [("size", 7), ("inherited", 7), "fixed", "Box"]


def test_an_attribute_of_an_async_actor_hid_the_method_of_its_name():
    @hoplo.remote
    class Box:
        def __init__(self):
            self.size = 7

        async def size(self):
            return "size", self.__dict__["size"]

    assert hoplo.get(Box.remote().size.remote()) == ("size", 7)


def test_methods_that_only_the_instance_has_are_still_found():
    class Odd:
        def double(self, x):
            return 2 * x

        def __new__(cls):
            return Proxy(object.__new__(cls))

    class Proxy:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    assert hoplo.get(hoplo.remote(Odd).remote().double.remote(4)) == 8
