"""What can be a remote function: lambdas, closures, what `__main__` holds, redefinitions."""

import os

import pytest
from conftest import run_driver

import hoplo
from hoplo import _serialization


@hoplo.remote
def add(x, y=1):
    return x + y


# ------------------------------------------------------------------------------------ functions


def test_lambdas_closures_and_local_functions():
    factor = 3

    def times(x):
        return x * factor

    assert hoplo.get(hoplo.remote(lambda x: x - 1).remote(3)) == 2
    assert hoplo.get(hoplo.remote(times).remote(5)) == 15


def test_a_function_defined_again_is_a_new_one():
    def make(version):
        def current():
            return version

        return hoplo.remote(current)

    refs = [make(i).remote() for i in range(5)]
    assert hoplo.get(refs) == [0, 1, 2, 3, 4]


def test_a_global_is_taken_when_the_function_is_first_called():
    scope = {"hoplo": hoplo, "LEVEL": 1}
    exec("@hoplo.remote\ndef level():\n    return LEVEL\n", scope)
    scope["LEVEL"] = 2
    assert hoplo.get(scope["level"].remote()) == 2
    scope["LEVEL"] = 3
    assert hoplo.get(scope["level"].remote()) == 2
    exec("@hoplo.remote\ndef level():\n    return LEVEL\n", scope)
    assert hoplo.get(scope["level"].remote()) == 3


def test_functions_may_call_each_other():
    @hoplo.remote
    def even(n):
        return True if n == 0 else hoplo.get(odd.remote(n - 1))

    @hoplo.remote
    def odd(n):
        return False if n == 0 else hoplo.get(even.remote(n - 1))

    assert hoplo.get(even.remote(6)) is True


def test_a_remote_function_keeps_its_name_and_doc():
    @hoplo.remote
    def documented():
        """What it does."""

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."
    assert documented.__wrapped__() is None


def test_remote_functions_and_actors_are_arguments_like_others():
    @hoplo.remote
    def apply(function, value):
        return hoplo.get(function.remote(value))

    assert hoplo.get(apply.remote(add, 4)) == 5
    assert hoplo.get(apply.remote(add.options(name="other"), 4)) == 5


def test_standard_functions():
    import math

    assert hoplo.get(hoplo.remote(math.sqrt).remote(16)) == 4


def test_a_function_is_shipped_once():
    class Counted:
        pickled = 0

        def __reduce__(self):
            Counted.pickled += 1
            return (int, (7,))

    captured = Counted()

    @hoplo.remote
    def f(x):
        return x + captured

    assert hoplo.get([f.remote(i) for i in range(200)]) == list(range(7, 207))
    assert hoplo.get(f.options(name="other", num_cpus=0.5).remote(0)) == 7
    assert Counted.pickled <= 2


def test_functions_and_classes_of_main():
    out = run_driver(
        """
import dataclasses, hoplo

@dataclasses.dataclass
class Point:
    x: int
    y: int

def norm(p):
    return abs(p.x) + abs(p.y)

class Trouble(Exception):
    pass

@hoplo.remote
def moved(p):
    assert norm(p) == 3
    return Point(p.x + 1, p.y)

@hoplo.remote
def fail():
    raise Trouble("of main")

if __name__ == "__main__":
    hoplo.init(num_cpus=1)
    p = hoplo.get(moved.remote(Point(1, 2)))
    print(p, type(p) is Point)
    try:
        hoplo.get(fail.remote())
    except Trouble as error:
        print("caught", type(error.cause) is Trouble, error.args)
"""
    ).stdout
    assert out.splitlines() == ["Point(x=2, y=2) True", "caught True ('of main',)"]


# ------------------------------------------------------------------------------------ large ones

MIB = 1 << 20


def test_large_functions_of_one_job_kept_others_from_being_exported():
    """The control store has room for 256 MiB of everybody's rows."""
    refs = []
    for number in range(6):
        captured = os.urandom(60 * MIB)

        @hoplo.remote
        def first(number=number, captured=captured):
            return number, captured[0], len(captured)

        refs.append((first.remote(), captured[0]))
        del first, captured
    for number, (ref, byte) in enumerate(refs):
        assert hoplo.get(ref) == (number, byte, 60 * MIB)
    assert hoplo.get(hoplo.remote(lambda: "small").remote()) == "small"


def test_a_large_function_is_stored_once_and_holds_the_refs_in_it():
    inner = hoplo.put(list(range(1000)))
    captured = os.urandom(MIB)

    def make():
        def use():
            return hoplo.get(inner)[-1], len(captured)

        return hoplo.remote(use)

    before = stored_bytes()
    assert hoplo.get([make().remote() for _ in range(5)]) == [(999, MIB)] * 5
    assert stored_bytes() - before < 2 * MIB


def stored_bytes():
    from processes import listed

    return sum(row.get("bytes") or 0 for row in listed("objects"))


def test_a_large_class_and_a_large_function_of_a_task():
    captured = os.urandom(MIB)

    class Large:
        def size(self):
            return len(captured)

    @hoplo.remote
    def outer():
        mine = os.urandom(MIB)
        return hoplo.get(hoplo.remote(lambda: len(mine)).remote())

    assert hoplo.get(hoplo.remote(Large).remote().size.remote()) == MIB
    assert hoplo.get(outer.remote()) == MIB


def test_too_many_functions_are_an_error_of_their_own_job_at_the_call():
    done = run_driver(
        """
import os, hoplo
hoplo.init(num_cpus=1)
def make(captured):
    def sized():
        return len(captured)
    return hoplo.remote(sized)
first = make(b"first").remote()
try:
    for number in range(2000):
        make(os.urandom(80_000)).remote()
except RuntimeError as error:
    print(number, error)
print(hoplo.get(first))
""",
        timeout=120,
    )
    assert "8" in done.stdout.split()[0]
    assert "a job may have 67108864" in done.stdout
    assert "sized" in done.stdout
    assert "not in a loop" in done.stdout
    assert done.stdout.splitlines()[-1] == "5"


# ------------------------------------------------------------------------------------ too large


def test_a_function_or_class_that_captures_too_much_is_refused_at_the_call(monkeypatch):
    monkeypatch.setattr(_serialization, "DEFINITION_BYTES_MAX", 1_000_000)
    data = os.urandom(1_000_000)

    @hoplo.remote
    def captures():
        return len(data)

    @hoplo.remote
    class Captures:
        def size(self):
            return len(data)

    for _ in range(2):
        with pytest.raises(ValueError, match=r"function captures is too large.*1,000,\d{3} bytes"):
            captures.remote()
    with pytest.raises(ValueError, match=r"class Captures is too large.*hoplo\.put\(\).*refs"):
        Captures.remote()
    ref = hoplo.put(data)
    assert hoplo.get(hoplo.remote(len).remote(ref)) == 1_000_000
    monkeypatch.undo()
    assert hoplo.get(captures.remote()) == 1_000_000


def test_a_function_or_class_that_captures_much_is_told_once(monkeypatch, capfd):
    monkeypatch.setattr(_serialization, "DEFINITION_BYTES_TOLD", 200_000)
    data = os.urandom(200_000)

    @hoplo.remote
    def captures(x):
        return len(data) + x

    @hoplo.remote
    class Captures:
        def size(self):
            return len(data)

    assert hoplo.get([captures.remote(x) for x in range(3)]) == [200_000, 200_001, 200_002]
    assert hoplo.get([Captures.remote().size.remote() for _ in range(2)]) == [200_000] * 2
    said = [line for line in capfd.readouterr().err.splitlines() if "is large" in line]
    assert [line.split(" is large")[0] for line in said] == [
        "hoplo: the function captures",
        "hoplo: the class Captures",
    ]
    assert all("hoplo.put()" in line and "200," in line for line in said)


def test_what_is_large_is_ten_megabytes_and_too_large_ninety_five():
    assert _serialization.DEFINITION_BYTES_TOLD == 10_000_000
    assert _serialization.DEFINITION_BYTES_MAX == 95_000_000


SUBMODULES = """
import hoplo
import pk.deep

@hoplo.remote
def nested():
    def inner():
        return pk.deep.value()
    return inner()

@hoplo.remote
def twice_nested():
    def inner():
        return (lambda: pk.deep.value())()
    return inner()

@hoplo.remote
def comprehended():
    return [pk.deep.value() for _ in range(1)][0]

@hoplo.remote
def generated():
    return next(pk.deep.value() for _ in range(1))

@hoplo.remote
class Holder:
    def method(self):
        def inner():
            return pk.deep.value()
        return inner()

def captured():
    import pk as package
    return hoplo.remote(lambda: next(package.deep.value() for _ in range(1)))

ask = {
    "nested": nested.remote,
    "twice_nested": twice_nested.remote,
    "comprehended": comprehended.remote,
    "generated": generated.remote,
    "method": lambda: Holder.remote().method.remote(),
    "lambda": hoplo.remote(lambda: (lambda: pk.deep.value())()).remote,
    "captured": captured().remote,
}[__import__("sys").argv[1]]
hoplo.init(num_cpus=1)
print(hoplo.get(ask()))
"""


@pytest.mark.parametrize(
    "kind",
    ["nested", "twice_nested", "comprehended", "generated", "method", "lambda", "captured"],
)
def test_a_submodule_that_only_an_inner_function_names_is_imported(tmp_path, kind):
    package = tmp_path / "pk"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "deep.py").write_text("def value():\n    return 'deep'\n")
    done = run_driver(SUBMODULES, kind, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.stdout == "deep\n"
