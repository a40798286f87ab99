"""timeline: what ran, as a Chrome trace."""

import json

import pytest
from conftest import eventually, run_driver

import hoplo


@hoplo.remote
def step(x):
    return x


@hoplo.remote
class Worker:
    def work(self):
        return 1


def test_it_cannot_be_written():
    with pytest.raises(FileNotFoundError):
        hoplo.timeline("/nowhere/trace.json")


def test_every_task_is_an_event(tmp_path):
    hoplo.get([step.options(name="my step").remote(i) for i in range(5)])
    worker = Worker.remote()
    hoplo.get([worker.work.remote() for _ in range(3)])

    def recorded():
        names = [event["name"] for event in hoplo.timeline()]
        return names.count("my step") == 5 and sum("work" in n.lower() for n in names) >= 3

    eventually(recorded)
    spans = [event for event in hoplo.timeline() if event["ph"] == "X"]
    for event in spans:
        assert event["ts"] > 0
        assert event["dur"] >= 0
        assert event["cat"]
        assert "pid" in event
        assert "tid" in event
    mine = [event for event in spans if event["name"] == "my step"]
    assert len(mine) == 5
    # Microseconds since the epoch or the machine's start, in order of time.
    assert len({event["ts"] for event in mine}) > 1

    path = tmp_path / "trace.json"
    assert hoplo.timeline(path) is None
    assert isinstance(json.loads(path.read_text()), list)
    assert {e["name"] for e in mine} <= {e["name"] for e in json.loads(path.read_text())}


def test_a_task_that_failed_says_so():
    @hoplo.remote
    def fails():
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        hoplo.get(fails.remote())
    eventually(lambda: any("fails" in event["name"] for event in hoplo.timeline()))
    (event,) = [event for event in hoplo.timeline() if "fails" in event["name"]]
    assert event["args"]["failed"] is True


def test_tasks_of_tasks_are_in_it():
    @hoplo.remote
    def inner():
        return 1

    @hoplo.remote
    def outer():
        return hoplo.get([inner.options(name="nested step").remote() for _ in range(3)])

    hoplo.get(outer.remote())
    eventually(
        lambda: [event["name"] for event in hoplo.timeline()].count("nested step") == 3,
    )


def test_an_empty_one():
    out = run_driver("import hoplo\nhoplo.init(num_cpus=1)\nprint(hoplo.timeline())\n").stdout
    assert json.loads(out) == []
