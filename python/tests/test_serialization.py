"""What cannot be pickled is named by its path; what is odd arrives all the same."""

import io
import socket
import sys
import threading
import types

import fastapi
import numpy as np
import pydantic
import pytest
from conftest import run_driver

import hoplo
from hoplo.exceptions import (
    DeserializationError,
    SerializationError,
)
from hoplo.util import inspect_serializability


@hoplo.remote
def echo(value, *rest, **named):
    return value


class Model:
    def __init__(self):
        self.layers = [{"lock": threading.Lock()}]


@hoplo.remote
class Holder:
    def __init__(self, value=None):
        self.value = value

    def lock(self):
        return {"mine": threading.Lock()}

    def set(self, value):
        self.value = value


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda m: echo.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: echo.remote(1, 2, [m]), r"args\[2\]\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: echo.remote(1, key=m), r"kwargs\['key'\]\.layers\[0\]\['lock'\]"),
        (lambda m: hoplo.put({"a": m}), r"the value\['a'\]\.layers\[0\]\['lock'\]"),
        (lambda m: Holder.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
        (lambda m: Holder.remote().set.remote(m), r"args\[0\]\.layers\[0\]\['lock'\]"),
    ],
)
def test_an_argument_that_cannot_be_pickled_is_named_at_the_call(call, path):
    with pytest.raises(SerializationError, match=path) as caught:
        call(Model())
    assert isinstance(caught.value, TypeError)
    assert "_thread.lock" in str(caught.value)
    assert "__getstate__" in str(caught.value)


def test_a_result_that_cannot_be_pickled_is_named_at_get():
    @hoplo.remote
    def bad():
        return [1, {"here": threading.Lock()}]

    with pytest.raises(SerializationError, match=r"the result of .*bad.*\[1\]\['here'\]"):
        hoplo.get(bad.remote())
    with pytest.raises(SerializationError, match=r"\['mine'\]"):
        hoplo.get(Holder.remote().lock.remote())
    assert hoplo.get(echo.remote(1)) == 1


def test_one_of_several_results_cannot_be_pickled():
    @hoplo.remote(num_returns=2)
    def mixed():
        return 1, threading.Lock()

    _, second = mixed.remote()
    with pytest.raises(SerializationError, match="lock"):
        hoplo.get(second)


def test_a_captured_variable_that_cannot_be_pickled():
    mine = socket.socket()

    @hoplo.remote
    def captures():
        return mine

    with pytest.raises(SerializationError, match=r"captured variable 'mine'"):
        captures.remote()
    mine.close()

    @hoplo.remote
    class Captures:
        def method(self):
            return mine

    with pytest.raises(SerializationError, match="mine"):
        Captures.remote()


def test_a_value_whose_getstate_raises():
    class Grumpy:
        def __getstate__(self):
            raise RuntimeError("not today")

    with pytest.raises(SerializationError, match="not today"):
        hoplo.put([Grumpy()])


def test_a_value_that_cannot_be_unpickled():
    class Once:
        def __reduce__(self):
            return (explode, ())

    @hoplo.remote
    def takes(value):
        return 1

    with pytest.raises(Exception, match="cannot be read back"):
        hoplo.get(takes.remote(Once()))
    with pytest.raises(DeserializationError, match="cannot be read back"):
        hoplo.get(hoplo.put(Once()))


class Coded(Exception):
    """Of a module that workers can import."""


def explode():
    raise ValueError("cannot be read back")


def test_inspect_serializability():
    out = io.StringIO()
    fine, parts = inspect_serializability(Model(), "model", print_file=out)
    assert not fine
    (part,) = parts
    assert part.path == "model.layers[0]['lock']"
    assert part.type_name == "lock"
    assert "model.layers[0]['lock'] (lock)" in out.getvalue()
    lock = threading.Lock()
    fine, parts = inspect_serializability(lambda: lock, "f", print_file=out)
    assert "captured variable 'lock'" in next(iter(parts)).path
    assert inspect_serializability([1, 2], print_file=out) == (True, set())
    assert "list can be pickled" in out.getvalue()


# ------------------------------------------------------------------------------------ classes


def test_a_class_made_here_and_there_is_the_same_when_importable():
    back = hoplo.get(echo.remote(Coded))
    assert back is Coded


def test_a_local_class_keeps_its_identity_here():
    class Local:
        def __init__(self, x):
            self.x = x

    back = hoplo.get([echo.remote(Local(1)), echo.remote(Local(2))])
    assert [b.x for b in back] == [1, 2]
    assert type(back[0]) is type(back[1]) is Local


def test_modules_sent_by_value(tmp_path):
    out = run_driver(
        f"""
import sys, cloudpickle, hoplo
sys.path.insert(0, {str(tmp_path)!r})
open({str(tmp_path / "local_only.py")!r}, "w").write("def f():\\n    return 42\\n")
import local_only
cloudpickle.register_pickle_by_value(local_only)
import os; os.remove({str(tmp_path / "local_only.py")!r})
hoplo.init(num_cpus=1)
print(hoplo.get(hoplo.remote(lambda g: g()).remote(local_only.f)))
"""
    ).stdout
    assert out == "42\n"


def test_while_another_thread_imports_cloudpickle(monkeypatch):
    """It is among the modules then, and has nothing in it yet."""
    monkeypatch.setitem(sys.modules, "cloudpickle", types.ModuleType("cloudpickle"))
    ref = hoplo.put(1)
    [[[again], more]] = hoplo.get([hoplo.put([[ref], {"it": 7}])])
    assert (again, more) == (ref, {"it": 7})


class AsksItself:
    """As starlette's State: `__getattr__` looks into what is not there before it has its state."""

    def __init__(self, **values):
        self._values = values

    def __getattr__(self, name):
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None


class AsksItsSlots:
    __slots__ = ("_inner", "other")

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_class_whose_getattr_needs_its_state_recursed_without_end():
    slots = AsksItsSlots()
    slots._inner, slots.other = [1], np.arange(100_000)
    value = {"state": AsksItself(a=1, b=np.ones(100_000)), "slots": slots, "ref": hoplo.put(5)}

    @hoplo.remote
    class Holder:
        def __init__(self, value):
            self.value = value

        def whole(self, other):
            return self.value, other, value["state"].a

    for mine, theirs, a in [hoplo.get(Holder.remote(value).whole.remote(value))]:
        for read in (mine, theirs, hoplo.get(hoplo.put(value))):
            assert read["state"].a == a == 1
            assert read["state"].b.sum() == 100_000
            assert read["slots"].other[-1] == 99_999
            assert list(read["slots"]._inner) == [1]
            assert hoplo.get(read["ref"]) == 5


def test_a_state_that_recurses_for_real_is_still_told():
    class Endless:
        def __setstate__(self, state):
            self.__setstate__(state)

    endless = Endless()
    endless.a = 1

    @hoplo.remote
    def take(value):
        return value

    with pytest.raises(hoplo.exceptions.HoploError, match=r"RecursionError|recursion"):
        hoplo.get(take.remote(endless))


def test_a_fastapi_app_recursed_without_end():
    class Item(pydantic.BaseModel):
        name: str
        tags: list[str] = []

    app = fastapi.FastAPI()
    app.state.shop = "corner"

    @app.post("/{number}")
    def add(number: int, item: Item) -> Item:
        return item

    @hoplo.remote
    class Server:
        def __init__(self, app):
            self.app = app

        def look(self, item):
            return self.app.state.shop, len(self.app.routes), item.model_dump(), app.state.shop

    shop, routes, item, captured = hoplo.get(Server.remote(app).look.remote(Item(name="a")))
    assert (shop, captured, item) == ("corner", "corner", {"name": "a", "tags": []})
    assert routes == len(app.routes)


def test_a_pydantic_model_of_a_program_recursed_without_end():
    done = run_driver(
        """
import hoplo
import pydantic
hoplo.init(num_cpus=1)

class Inner(pydantic.BaseModel):
    n: int

class Item(pydantic.BaseModel):
    inner: Inner
    tags: list[str] = []

@hoplo.remote
def look(item):
    item.tags.append("seen")
    return item, Item.model_validate(item.model_dump()) == item

item, same = hoplo.get(look.remote(Item(inner=Inner(n=3))))
print(type(item) is Item, item, same)
"""
    )
    assert done.stdout.splitlines() == ["True inner=Inner(n=3) tags=['seen'] True"], done.stderr
