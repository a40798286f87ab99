"""Actors that restart from checkpoints: each call takes effect once in their state."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from conftest import eventually
from processes import Notes

import hoplo
import hoplo.util.state
from hoplo.exceptions import ActorDiedError, TaskError


class Ledger:
    """Its state is the list of what it was told: what ran, how often, and in which order."""

    def __init__(self, notes=None):
        self.entries = []
        self.notes = notes

    def checkpoint(self):
        if self.notes is not None:
            self.notes.add(f"checkpoint {len(self.entries)}")
        return self.entries

    def restore(self, state):
        if self.notes is not None:
            self.notes.add(f"restore {len(state)}")
        self.entries = state

    def add(self, entry):
        if self.notes is not None:
            self.notes.add(f"add {entry}")
        self.entries.append(entry)
        return len(self.entries)

    def all(self):
        return self.entries

    def pid(self):
        return os.getpid()

    def die_once(self, notes):
        self.entries.append("died")
        if notes.add() == 1:
            os._exit(3)
        return len(self.entries)


def ledger(notes=None, **options):
    return hoplo.remote(Ledger).options(max_restarts=-1, **options).remote(notes)


def kill(actor):
    """Ends its process; who calls it next sees nothing but a delay."""
    os.kill(hoplo.get(actor.pid.remote()), signal.SIGKILL)


def test_a_killed_actor_has_its_state_again_and_replies_as_if_nothing_had_been():
    actor = ledger(checkpoint_every=10)
    replies = []
    for entry in range(95):
        replies.append(actor.add.remote(entry))
        if entry % 20 == 13:
            kill(actor)
    assert hoplo.get(replies) == list(range(1, 96))
    assert hoplo.get(actor.all.remote()) == list(range(95))


def test_no_more_calls_run_again_than_came_since_the_last_checkpoint(tmp_path):
    notes = Notes(tmp_path / "notes")
    actor = ledger(notes, checkpoint_every=10)
    assert hoplo.get([actor.add.remote(entry) for entry in range(37)]) == list(range(1, 38))
    kill(actor)
    assert hoplo.get(actor.all.remote()) == list(range(37))
    lines = notes.lines()
    restored = lines.index(next(line for line in lines if line.startswith("restore")))
    assert lines[restored] == "restore 30"
    assert lines[restored + 1 :] == [f"add {entry}" for entry in range(30, 37)]


def test_before_the_first_checkpoint_all_calls_run_again(tmp_path):
    notes = Notes(tmp_path / "notes")
    actor = ledger(notes, checkpoint_every=1000)
    assert hoplo.get([actor.add.remote(entry) for entry in range(5)]) == [1, 2, 3, 4, 5]
    kill(actor)
    assert hoplo.get(actor.add.remote(5)) == 6
    assert hoplo.get(actor.all.remote()) == list(range(6))
    assert notes.lines() == [f"add {entry}" for entry in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5)]


def test_the_call_under_which_it_dies_takes_effect_once(tmp_path):
    notes = Notes(tmp_path / "runs")
    actor = ledger(checkpoint_every=4)
    before = [actor.add.remote(entry) for entry in range(6)]
    died, after = actor.die_once.remote(notes), actor.add.remote(6)
    assert hoplo.get([*before, died, after]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert hoplo.get(actor.all.remote()) == [0, 1, 2, 3, 4, 5, "died", 6]
    assert len(notes.lines()) == 2


@hoplo.remote
def adds(actor, name, count):
    return [hoplo.get(actor.add.remote((name, one))) for one in range(count)]


def test_calls_of_several_processes_are_replayed_in_the_order_in_which_they_came():
    actor = ledger(checkpoint_every=7)
    callers = [adds.remote(actor, name, 60) for name in range(3)]
    for _ in range(4):
        kill(actor)
    replies = hoplo.get(callers)
    entries = hoplo.get(actor.all.remote())
    # A reply says at which place the call stands, and it still stands there.
    for name, places in enumerate(replies):
        assert [entries[place - 1] for place in places] == [(name, one) for one in range(60)]
    assert len(entries) == 180


@hoplo.remote(max_retries=0)
def adds_and_dies(actor, count):
    hoplo.get([actor.add.remote(one) for one in range(count)])
    os._exit(1)


def test_calls_of_a_caller_that_is_dead_are_replayed():
    actor = ledger(checkpoint_every=1000)
    with pytest.raises(Exception, match="exited with code 1"):
        hoplo.get(adds_and_dies.remote(actor, 5))
    kill(actor)
    assert hoplo.get(actor.all.remote()) == [0, 1, 2, 3, 4]


class Holder(Ledger):
    def take(self, array, refs):
        self.entries.append((array, refs))
        return float(array.sum())

    def sums(self):
        return [float(array.sum() + hoplo.get(refs["ref"]).sum()) for array, refs in self.entries]

    def large(self):
        self.entries.append("large")
        return np.full(100_000, len(self.entries))

    def with_a_ref(self):
        return [hoplo.put(len(self.entries))]


def test_large_arguments_and_refs_in_them_are_kept_until_the_checkpoint(tmp_path):
    holder = hoplo.remote(Holder).options(max_restarts=-1, checkpoint_every=4).remote()
    expected = []
    for one in range(6):
        array, inner = np.full(50_000, float(one)), hoplo.put(np.full(60_000, 1.0))
        assert hoplo.get(holder.take.remote(array, {"ref": inner})) == 50_000 * one
        expected.append(50_000.0 * one + 60_000)
        del array, inner
    kill(holder)
    assert hoplo.get(holder.sums.remote()) == expected
    kill(holder)
    assert hoplo.get(holder.sums.remote()) == expected


def test_a_large_result_of_the_call_under_which_it_died_comes(tmp_path):
    notes = Notes(tmp_path / "runs")

    class Dies(Holder):
        def large(self):
            self.entries.append("large")
            array = np.full(100_000, len(self.entries))
            if notes.add() == 1:
                os._exit(1)
            return array

        def two(self):
            self.entries.append("two")
            if notes.add() == 3:
                os._exit(1)
            return len(self.entries), np.full(100_000, len(self.entries))

        def inner(self):
            self.entries.append("inner")
            if notes.add() == 6:
                os._exit(1)
            return [hoplo.put(len(self.entries))]

        def bare(self):
            self.entries.append("bare")
            if notes.add() == 10:
                os._exit(1)
            return hoplo.put(len(self.entries))

    actor = hoplo.remote(Dies).options(max_restarts=-1).remote()
    assert hoplo.get(actor.large.remote())[0] == 1
    small, large = actor.two.options(num_returns=2).remote()
    assert hoplo.get(small) == 2
    assert hoplo.get(large)[0] == 2
    assert hoplo.get(hoplo.get(actor.inner.remote())[0]) == 3
    assert hoplo.get(hoplo.get(actor.bare.remote())) == 4
    assert hoplo.get(actor.all.remote()) == ["large", "two", "inner", "bare"]


def test_what_a_call_raises_is_its_answer_and_is_not_tried_again(tmp_path):
    notes = Notes(tmp_path / "runs")

    class Raises(Ledger):
        def refuse(self):
            notes.add()
            self.entries.append("refused")
            raise ValueError("no")

    actor = hoplo.remote(Raises).options(max_restarts=-1).remote()
    with pytest.raises(ValueError, match="no"):
        hoplo.get(actor.refuse.options(retry_exceptions=True, max_task_retries=3).remote())
    assert len(notes.lines()) == 1
    kill(actor)
    assert hoplo.get(actor.all.remote()) == ["refused"]


def test_an_argument_that_failed_changes_nothing_and_is_not_replayed():
    @hoplo.remote
    def fails():
        raise ValueError("no argument")

    actor = ledger()
    with pytest.raises(TaskError, match="no argument"):
        hoplo.get(actor.add.remote(fails.remote()))
    assert hoplo.get(actor.add.remote(1)) == 1
    kill(actor)
    assert hoplo.get(actor.all.remote()) == [1]


def test_calls_that_it_makes_itself_are_made_again_when_it_is_replayed(tmp_path):
    notes = Notes(tmp_path / "outside")

    @hoplo.remote
    def outside(entry):
        notes.add(entry)
        return entry * 10

    class Asks(Ledger):
        def ask(self, entry):
            self.entries.append(hoplo.get(outside.remote(entry)))
            return len(self.entries)

    actor = hoplo.remote(Asks).options(max_restarts=-1, checkpoint_every=1000).remote()
    assert hoplo.get([actor.ask.remote(1), actor.ask.remote(2)]) == [1, 2]
    kill(actor)
    assert hoplo.get(actor.all.remote()) == [10, 20]
    assert sorted(notes.lines()) == ["1", "1", "2", "2"]


def test_checkpoint_by_hand_and_by_time(tmp_path):
    notes = Notes(tmp_path / "notes")

    class Asks(Ledger):
        def close(self):
            hoplo.checkpoint()
            self.entries.append("closed")

    actor = hoplo.remote(Asks).options(max_restarts=-1, checkpoint_every=1000).remote(notes)
    hoplo.get(actor.add.remote(1))
    hoplo.get(actor.close.remote())
    hoplo.get(actor.add.remote(2))
    assert "checkpoint 2" in notes.lines()

    often = Notes(tmp_path / "often")
    actor = ledger(often, checkpoint_every=1000, checkpoint_interval_s=0.001)

    def made():
        hoplo.get(actor.add.remote("more"))
        return sum(line.startswith("checkpoint") for line in often.lines()) >= 3

    eventually(made, what="checkpoints by time")


def test_an_idle_actor_makes_a_checkpoint_of_what_it_did(tmp_path):
    notes = Notes(tmp_path / "notes")
    actor = ledger(notes, checkpoint_interval_s=0.05)
    hoplo.get(actor.add.remote(1))
    eventually(lambda: "checkpoint 1" in notes.lines(), what="a checkpoint without another call")
    other = ledger(checkpoint_interval_s=0.05)
    hoplo.get([actor.add.remote([other]), other.add.remote([actor])])
    assert hoplo.get(other.pid.remote()) > 0


def test_checkpoint_elsewhere_says_what_it_is_for():
    with pytest.raises(RuntimeError, match="max_restarts"):
        hoplo.checkpoint()

    @hoplo.remote(max_restarts=1)
    class Plain:
        def ask(self):
            hoplo.checkpoint()

    with pytest.raises(RuntimeError, match="methods checkpoint and restore"):
        hoplo.get(Plain.remote().ask.remote())


def test_a_checkpoint_that_raises_is_told_and_calls_are_kept_longer(tmp_path, capfd):
    class Fails(Ledger):
        def checkpoint(self):
            if len(self.entries) < 25:
                raise ValueError("not yet")
            return self.entries

    actor = hoplo.remote(Fails).options(max_restarts=-1, checkpoint_every=10).remote()
    hoplo.get([actor.add.remote(entry) for entry in range(15)])
    kill(actor)
    assert hoplo.get(actor.all.remote()) == list(range(15))
    hoplo.get([actor.add.remote(entry) for entry in range(15, 40)])
    kill(actor)
    assert hoplo.get(actor.all.remote()) == list(range(40))
    printed = []

    def told():
        out, err = capfd.readouterr()
        printed.append(out + err)
        return "made no checkpoint" in "".join(printed) and "not yet" in "".join(printed)

    eventually(told, what="the checkpoint that raised is told")


def test_state_that_cannot_be_pickled_is_told(capfd):
    class Locks(Ledger):
        def checkpoint(self):
            return threading.Lock()

    actor = hoplo.remote(Locks).options(max_restarts=-1, checkpoint_every=2).remote()
    assert hoplo.get([actor.add.remote(entry) for entry in range(5)]) == [1, 2, 3, 4, 5]
    kill(actor)
    assert hoplo.get(actor.all.remote()) == list(range(5))
    printed = []

    def told():
        out, err = capfd.readouterr()
        printed.append(out + err)
        return "Locks.checkpoint() returned" in "".join(printed)

    eventually(told, what="what cannot be pickled is named")


def test_without_checkpoints_an_actor_ends_when_its_log_is_full():
    class Fails(Ledger):
        def checkpoint(self):
            raise ValueError("never")

    actor = hoplo.remote(Fails).options(max_restarts=-1, checkpoint_every=1000).remote()
    refs = [actor.add.remote(b"x" * 90_000) for _ in range(200)]
    with pytest.raises(ActorDiedError, match="could not make a checkpoint for so long"):
        hoplo.get(refs)


def test_a_large_log_forces_a_checkpoint(tmp_path):
    notes = Notes(tmp_path / "notes")

    class Counts(Ledger):
        def add(self, entry):
            self.entries.append(len(entry))
            return len(self.entries)

    actor = hoplo.remote(Counts).options(max_restarts=-1, checkpoint_every=1_000_000).remote(notes)
    for _ in range(100):
        hoplo.get(actor.add.remote(b"x" * 90_000))
    assert any(line.startswith("checkpoint") for line in notes.lines())
    kill(actor)
    assert hoplo.get(actor.all.remote()) == [90_000] * 100


def test_a_state_that_is_too_large_is_told(capfd):
    class Large(Ledger):
        def checkpoint(self):
            return b"x" * (65 * 1024 * 1024)

    actor = hoplo.remote(Large).options(max_restarts=-1, checkpoint_every=1).remote()
    assert hoplo.get(actor.add.remote(1)) == 1
    assert hoplo.get(actor.add.remote(2)) == 2
    printed = []

    def told():
        out, err = capfd.readouterr()
        printed.append(out + err)
        return "hoplo.put()" in "".join(printed)

    eventually(told, what="the remedy is told")


def test_a_state_with_refs_in_it():
    class Refs(Ledger):
        def add(self, entry):
            self.entries.append(hoplo.put(np.full(50_000, entry)))
            return len(self.entries)

        def read(self):
            return [int(hoplo.get(ref)[0]) for ref in self.entries]

    actor = hoplo.remote(Refs).options(max_restarts=-1, checkpoint_every=3).remote()
    hoplo.get([actor.add.remote(entry) for entry in range(8)])
    kill(actor)
    assert hoplo.get(actor.read.remote()) == list(range(8))


def test_a_restore_that_raises_ends_the_actor():
    class Fails(Ledger):
        def restore(self, state):
            raise ValueError("cannot be restored")

    actor = hoplo.remote(Fails).options(max_restarts=-1, checkpoint_every=1).remote()
    hoplo.get(actor.add.remote(1))
    kill(actor)
    with pytest.raises(
        ActorDiedError, match=r"restore\(\) of Fails raised(.|\n)*cannot be restored"
    ):
        hoplo.get(actor.add.remote(2))


def test_restarts_that_are_used_up_while_it_is_replayed(tmp_path):
    class Dies(Ledger):
        def die(self):
            os._exit(5)

    actor = hoplo.remote(Dies).options(max_restarts=2).remote()
    hoplo.get(actor.add.remote(1))
    with pytest.raises(ActorDiedError, match="exited with code 5"):
        hoplo.get(actor.die.remote())
    with pytest.raises(ActorDiedError):
        hoplo.get(actor.add.remote(1))


def test_an_actor_that_leaves_stays_away():
    class Leaves(Ledger):
        def leave(self):
            hoplo.exit_actor()

    actor = hoplo.remote(Leaves).options(max_restarts=-1).remote()
    hoplo.get(actor.add.remote(1))
    with pytest.raises(ActorDiedError, match="exit_actor"):
        hoplo.get(actor.leave.remote())
    with pytest.raises(ActorDiedError):
        hoplo.get(actor.add.remote(2))


def test_what_it_holds_goes_with_it():
    actor = hoplo.remote(Holder).options(max_restarts=-1, checkpoint_every=2).remote()
    before = stored()
    for one in range(5):
        inner = hoplo.put(np.zeros(60_000))
        hoplo.get(actor.take.remote(np.full(50_000, float(one)), {"ref": inner}))
        del inner
    assert stored() > before
    del actor
    eventually(lambda: stored() <= before, what="all of it is freed")


def stored():
    return len(
        [row for row in hoplo.util.state.list_objects(limit=10_000) if row["object_size"] > 100_000]
    )


# ------------------------------------------------------------------------------- what is refused


def test_a_class_whose_calls_have_no_order_is_refused():
    class Async:
        def checkpoint(self): ...
        def restore(self, state): ...
        async def work(self):
            return 1

    with pytest.raises(ValueError, match=r"async methods(.|\n)*checkpoint_every=0"):
        hoplo.remote(Async).options(max_restarts=1).remote()
    plain = hoplo.remote(Async).options(max_restarts=1, checkpoint_every=0).remote()
    assert hoplo.get(plain.work.remote()) == 1
    with pytest.raises(ValueError, match="several calls at once"):
        hoplo.remote(Ledger).options(max_restarts=1, max_concurrency=2).remote()

    class Streams(Ledger):
        def values(self):
            yield 1

    with pytest.raises(ValueError, match="values is a generator"):
        hoplo.remote(Streams).options(max_restarts=1).remote()
    with pytest.raises(ValueError, match="cannot be replayed"):
        [hoplo.get(ref) for ref in ledger().all.options(num_returns="streaming").remote()]


def test_options_without_the_methods_or_without_restarts():
    @hoplo.remote
    class Plain:
        def work(self):
            return 1

    with pytest.raises(ValueError, match=r"restore\(self, state\): give Plain both"):
        Plain.options(max_restarts=1, checkpoint_every=5).remote()
    with pytest.raises(ValueError, match="max_restarts=-1"):
        hoplo.remote(Ledger).options(checkpoint_interval_s=5).remote()
    with pytest.raises(ValueError, match="checkpoint_every"):
        hoplo.remote(Ledger).options(checkpoint_every=-1)


def test_methods_of_these_names_that_take_other_arguments_mean_something_else():
    @hoplo.remote(max_restarts=1)
    class Files:
        def checkpoint(self, path):
            return path

        def restore(self, path, when):
            return when

    files = Files.remote()
    assert hoplo.get(files.checkpoint.remote("here")) == "here"
    assert hoplo.get(files.restore.remote("here", 3)) == 3
    with pytest.raises(ValueError, match=r"restore\(self, state\)"):
        Files.options(checkpoint_every=1).remote()


def test_without_restarts_the_methods_are_methods_like_others():
    actor = hoplo.remote(Ledger).remote()
    hoplo.get(actor.add.remote(1))
    assert hoplo.get(actor.checkpoint.remote()) == [1]
    kill(actor)
    with pytest.raises(ActorDiedError):
        hoplo.get(actor.add.remote(2))
