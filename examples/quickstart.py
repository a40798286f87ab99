"""The whole idea in one screen: tasks, objects, actors.

python examples/quickstart.py
"""

import hoplo


@hoplo.remote
def square(x: int) -> int:
    """A task: runs in some worker process, and returns at once with a ref of its result."""
    return x * x


@hoplo.remote
def total(*values: int) -> int:
    """Refs in the arguments are waited for and replaced by their values before this runs."""
    return sum(values)


@hoplo.remote
class Counter:
    """An actor: an instance in a process of its own, whose methods run one after the other."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


def main() -> None:
    refs = [square.remote(i) for i in range(10)]
    print("squares:", hoplo.get(refs))
    print("their total:", hoplo.get(total.remote(*refs)))

    # An object that is needed often is stored once, and shared by everybody who reads it.
    table = hoplo.put({"answer": 42})
    print("from the store:", hoplo.get(table))

    counter = Counter.remote()
    for ref in refs:
        last = counter.add.remote(ref)
    print("the counter:", hoplo.get(last))

    # An error in a task is raised where its result is asked for, as what it was.
    try:
        hoplo.get(square.remote("seven"))
    except TypeError as error:
        print("an error:", error.cause)


if __name__ == "__main__":
    with hoplo.init():
        main()
