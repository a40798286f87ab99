"""What can be a remote function: lambdas, closures, what `__main__` holds, redefinitions."""

from conftest import run_driver

import hoplo


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
