"""What workers print reaches the driver, with a short prefix, repeated lines folded."""

import os
import re
import sys

import pytest
from conftest import eventually, printed_by, run_driver

import hoplo

NODE = {"num_cpus": 4}


class Told:
    """What the driver printed so far."""

    def __init__(self, capfd):
        self._capfd = capfd
        self.out = self.err = ""

    def read(self):
        out, err = self._capfd.readouterr()
        self.out += out
        self.err += err
        return self


@pytest.fixture
def told(capfd):
    return Told(capfd)


@hoplo.remote
def speak(text, stderr=False):
    print(text, file=sys.stderr if stderr else sys.stdout)
    return os.getpid()


def test_a_line_has_the_name_and_the_pid(told):
    pid = hoplo.get(speak.remote("hello there"))
    eventually(lambda: f"{printed_by('speak', pid)} hello there\n" in told.read().out)
    assert told.err == ""


def test_standard_error_goes_to_standard_error(told):
    pid = hoplo.get(speak.remote("bad news", stderr=True))
    eventually(lambda: f"{printed_by('speak', pid)} bad news\n" in told.read().err)
    assert "bad news" not in told.out


def test_an_actor_is_named_by_its_class(told):
    @hoplo.remote
    class Speaker:
        def __init__(self):
            print("born")

        def speak(self):
            print("spoken")
            return os.getpid()

    actor = Speaker.remote()
    pid = hoplo.get(actor.speak.remote())
    eventually(lambda: "spoken" in told.read().out)
    assert re.search(rf"\(\S*Speaker pid={pid}[^)]*\) born", told.out)
    assert re.search(rf"\(\S*Speaker\S* pid={pid}[^)]*\) spoken", told.out)


class Named:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        if self.name is None:
            raise ValueError("it has no name")
        return f"Named({self.name})"

    def speak(self):
        print(f"this is {self.name!r}")
        return os.getpid()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("one", "Named(one)"), (None, "Named"), ("a\n" + 99 * "b", f"Named(a {69 * 'b'}...")],
    ids=["short", "raises", "long"],
)
def test_an_actor_that_has_a_repr_is_named_by_it(told, name, shown):
    actor = hoplo.remote(Named).remote(name)
    pid = hoplo.get(actor.speak.remote())
    eventually(lambda: f"{printed_by(shown, pid)} this is {name!r}\n" in told.read().out)


def test_a_task_that_has_a_name_is_named_by_it(told):
    pid = hoplo.get(speak.options(name="the third").remote("this has a name"))
    eventually(lambda: f"{printed_by('the third', pid)} this has a name\n" in told.read().out)


def test_lines_that_many_workers_print_are_folded(told, gate):
    @hoplo.remote
    def arrive():
        gate.wait()
        print("loading the same thing")
        return os.getpid()

    refs = [arrive.remote() for _ in range(4)]
    eventually(lambda: gate.arrived() == 4)
    gate.open()
    assert len(set(hoplo.get(refs))) == 4
    eventually(lambda: "[repeated 3x]" in told.read().out)
    assert told.out.count("loading the same thing") == 2


def test_many_lines_all_arrive_in_order(told):
    @hoplo.remote
    def count():
        for i in range(1000):
            print("line", i)

    hoplo.get(count.remote())
    eventually(lambda: "line 999\n" in told.read().out)
    numbers = [int(n) for n in re.findall(r"line (\d+)\n", told.out)]
    assert numbers == list(range(1000))


def test_what_is_not_a_line_or_not_text(told):
    @hoplo.remote
    def odd():
        sys.stdout.write("no end of line")
        sys.stdout.flush()
        os.write(2, b"\xff\xfe not text\n")
        os.system("echo from a child process")
        print("x" * 200_000)

    hoplo.get(odd.remote())
    eventually(lambda: "not text" in told.read().err)
    eventually(lambda: told.read().out.count("x") >= 200_000)
    assert "from a child process" in told.out


def test_what_is_printed_last_is_shown():
    done = run_driver(
        """
import hoplo
@hoplo.remote
def f():
    print("the last words")
hoplo.get(f.remote())
"""
    )
    assert "the last words" in done.stdout


def test_log_to_driver_false():
    done = run_driver(
        """
import hoplo, os, glob
context = hoplo.init(num_cpus=1, log_to_driver=False)
@hoplo.remote
def f():
    print("kept quiet")
    return os.getpid()
pid = hoplo.get(f.remote())
for _ in range(1000):
    said = "".join(open(p).read() for p in glob.glob(context["session_dir"] + "/logs/*"))
    if "kept quiet" in said:
        break
    hoplo.get(f.remote())
else:
    raise SystemExit("not in the logs")
"""
    )
    assert "kept quiet" not in done.stdout + done.stderr


def test_it_is_quiet_otherwise(told):
    hoplo.get([hoplo.remote(lambda: None).remote() for _ in range(20)])
    assert told.read().out == ""
    assert told.err == ""


def test_a_line_without_an_end_was_glued_to_the_next_tasks(told):
    @hoplo.remote(num_cpus=4)  # so that they take turns in one worker
    def first():
        print("of the first", end="")
        sys.stderr.write("error of the first")
        return os.getpid()

    @hoplo.remote(num_cpus=4)
    def second():
        print("of the second")
        return os.getpid()

    pids = [hoplo.get(task.remote()) for task in (first, second, first, second)]
    assert len(set(pids)) == 1
    eventually(lambda: told.read().out.count("of the second\n") == 2)
    lines = [line.partition(") ")[2] for line in told.out.splitlines()]
    assert lines == ["of the first", "of the second"] * 2
    lines = [line.partition(") ")[2] for line in told.err.splitlines()]
    assert lines == ["error of the first"] * 2


def test_what_a_method_prints_without_an_end_is_a_line(told):
    @hoplo.remote
    class Dots:
        def dot(self):
            print(".", end="")

    dots = Dots.remote()
    hoplo.get([dots.dot.remote() for _ in range(3)])
    eventually(lambda: len(re.findall(r"\(Dots pid=\d+[^)]*\) \.\n", told.read().out)) == 3)


def test_lines_that_differ_only_in_numbers_are_folded(told, gate):
    @hoplo.remote
    def arrive(rank):
        gate.wait()
        print(f"rank {rank} has read part-{rank}.csv in 0.{rank} s")
        print(rank, f"{rank}.5")  # numbers alone are what somebody wants to see
        return os.getpid()

    refs = [arrive.remote(rank) for rank in range(4)]
    eventually(lambda: gate.arrived() == 4)
    gate.open()
    assert len(set(hoplo.get(refs))) == 4
    eventually(lambda: "[repeated 3x]" in told.read().out)
    assert len(re.findall(r"rank \d has read part-\d.csv in 0.\d s", told.out)) == 2
    assert sorted(re.findall(r"\) (\d \d.5)\n", told.out)) == ["0 0.5", "1 1.5", "2 2.5", "3 3.5"]


@pytest.mark.parametrize("variable", ["HOPLO_FOLD_OUTPUT=off", "RAY_DEDUP_LOGS=0"])
def test_all_lines_are_shown_to_who_wants_all(variable):
    name, _, value = variable.partition("=")
    done = run_driver(
        """
import hoplo.ray as ray
ray.init(num_cpus=2)
@ray.remote
class Speaker:
    def speak(self):
        print("the same line")
speakers = [Speaker.remote() for _ in range(3)]
ray.get([speaker.speak.remote() for speaker in speakers])
""",
        env={**os.environ, name: value},
    )
    assert done.stdout.count("the same line") == 3
    assert "repeated" not in done.stdout
    assert "no effect" not in done.stderr
