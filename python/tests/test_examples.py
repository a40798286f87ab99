"""Every program of examples/ runs, and shows what it promises."""

import re
import subprocess
import sys

import pytest
from conftest import TREE, eventually, processes

NODE = None

EXAMPLES = TREE / "examples"


def run(name, *arguments, timeout=100, **options):
    line = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: processes() == {}, what="everything of the example has ended")
    return done


def test_every_example_has_a_test():
    tested = {"quickstart", "map_reduce", "parameter_server", "async_actor", "train_policy"}
    tested |= {"distributed_sort", "move_a_gigabyte"}
    tested |= {"train_digits", "stream_samples", "serve_ensemble"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_quickstart():
    done = run("quickstart.py")
    assert done.stdout.splitlines() == [
        "squares: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
        "their total: 285",
        "from the store: {'answer': 42}",
        "the counter: 285",
        "an error: can't multiply sequence by non-int of type 'str'",
    ]
    assert done.stderr == ""


def test_map_reduce(tmp_path):
    for i in range(20):
        (tmp_path / f"{i}.txt").write_text("spam eggs spam\n" * (i + 1))
    done = run("map_reduce.py", *map(str, sorted(tmp_path.glob("*.txt"))))
    assert "630 words, 2 different, in 20 files" in done.stdout
    assert re.search(r"420\s+spam\n\s+210\s+eggs", done.stdout)
    assert "words" in run("map_reduce.py").stdout


def test_parameter_server():
    accuracy = float(
        re.search(r"accuracy on new data: ([\d.]+)%", run("parameter_server.py").stdout)[1]
    )
    assert accuracy > 80


def test_async_actor():
    out = run("async_actor.py").stdout
    assert len(re.findall(r"page \d after [\d.]+ s", out)) == 3
    assert "100 permits" in out
    assert "waiting now:" in out


def test_distributed_sort():
    out = run("distributed_sort.py", "0.8").stdout
    assert "sorted 800,000 numbers, 6 MB, in " in out
    assert re.search(r"node \w+ holds 8 of 8 partitions", out)


def test_move_a_gigabyte():
    assert "read 200 MB on one node, so nothing moved: " in run("move_a_gigabyte.py", "200").stdout


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_train_digits():
    pytest.importorskip("sklearn")
    accuracies = numbers(r"accuracy ([\d.]+)%", run("train_digits.py").stdout)
    assert len(accuracies) == 6, "three of each way to train"
    for at in (0, 3):
        assert accuracies[at] < accuracies[at + 2]
        assert accuracies[at + 2] > 75


def test_stream_samples():
    pytest.importorskip("gymnasium")
    returns = numbers(r"mean return\s+([\d.]+)", run("stream_samples.py").stdout)
    assert len(returns) == 8, "four of each kind of stream"
    for last in (returns[3], returns[7]):
        assert last > 40, "who pushes at random falls after 22 steps"


def test_serve_ensemble():
    pytest.importorskip("sklearn")
    out = run("serve_ensemble.py").stdout
    [alone] = numbers(r"one model alone: ([\d.]+)%", out)
    [vote] = numbers(r"the vote of 6: ([\d.]+)%", out)
    assert alone + 5 < vote


@pytest.mark.timeout(180)
def test_train_policy(tmp_path):
    pytest.importorskip("gymnasium")
    pytest.importorskip("matplotlib")
    out = run("train_policy.py", cwd=tmp_path, timeout=170).stdout
    mean = float(re.search(r"mean return\s+([\d.]+) over 100", out)[1])
    assert mean >= 475
    assert float(re.search(r"wall time\s+([\d.]+) s", out)[1]) < 120
    for line in ("tasks", "method calls", "calls/s", "objects stored", "bytes stored"):
        assert re.search(rf"^{line}\s+[\d,.]+$", out, re.MULTILINE), out
    assert (tmp_path / "train_policy.png").read_bytes().startswith(b"\x89PNG")
