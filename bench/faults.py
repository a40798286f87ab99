"""What nodes that die cost (OSDI'18, figure 11a), hoplo and Ray in the same run.

Chains of tasks of 100 ms, each with a result of 100 KB that the next one reads. Machines are
network namespaces with one CPU each, the head's takes none of the tasks. Nodes lose their power one
by one (all their processes are killed at once) down to two, and come back one by one. Every chain
must end with the right value. Needs root.

Then actors with checkpoints each 10 calls (figure 11b): their calls write to a ledger outside and
to their state, and one of their nodes dies. Every reply must say where its call stands in the end.

What is told: throughput for each node that is there, outside the second that follows each event,
against that of before the first one; tasks that ran more than once; the longest wait for a result
of a task, with tasks one after the other, when the node dies that runs them, and when the head dies
and is started again; and the longest wait for a task, and for an actor with a name, which the head
decides about, when the machine of the head dies with the control node that it has, or another one
of three control nodes dies.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    NOT_INSTALLED,
    RESULTS,
    Player,
    PlayerError,
    Question,
    Row,
    Seat,
    at_least,
    at_most,
    versions,
)

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab
from machines import alive, until
from three import NUMBERS, Three

sys.path.insert(0, str(HERE / "players"))
from ray_machines import RayMachines

HOPLO, RAY = "hoplo", "ray"
PLAYS = str(HERE / "players" / "play_faults.py")

question = Question("faults", "When nodes die", {})
QUICK = question.options.quick

WORKERS = 3 if QUICK else 6
LEFT = 2
"""Nodes are taken away until so many are left."""

CHAINS = 12
"""As the player has them."""

STEPS = 8 if QUICK else 160
CALM_SECONDS = 1.0 if QUICK else 4.0
"""Before the first event, and between two of them."""

DISTURBED_SECONDS = 1.0

LEDGERS = 20 if QUICK else 200
LEDGER_CALLS = 100
LEDGER_WORKERS = 3 if QUICK else 5
KILLS = 1 if QUICK else 10
PAUSE_MS = 1500
# What a client may see of it.
SEEN_MS = 50


class Cluster:
    """A head that takes no work, and `workers` nodes that do: machines 2, 3, ..."""

    heads = 1

    def __init__(self, workers: int, seat: int = 1) -> None:
        """The player sits at the machine `seat`: 1 is the head's."""
        self.seat = seat
        self.lab = Lab(nodes=self.heads + workers)
        self.numbers = list(range(self.heads + 1, self.heads + 1 + workers))
        self.log = self.lab.folder / "steps"

    def start(self) -> Seat:
        raise NotImplementedError

    def kill(self, number: int) -> None:
        raise NotImplementedError

    def join(self, number: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        question.clear_seats()
        self.lab.end()


class Hoplo(Cluster):
    def start(self) -> Seat:
        head = self.lab[1]
        self.joining = head.head("--num-cpus", "0")
        for number in self.numbers:
            self.join(number)
        until(lambda: len(head.nodes()) == 1 + len(self.numbers))
        here = self.lab[self.seat]
        return Seat([PLAYS, HOPLO], here.prefix, here.environment(BENCH_LOG=str(self.log)))

    def kill(self, number: int) -> None:
        self.lab[number].kill()

    def join(self, number: int) -> None:
        self.lab[number].join(self.joining)

    def head_dies_and_starts_again(self) -> Callable[[], None]:
        """To be called later: it waits until all is as it was."""
        head = self.lab[1]
        pid = head.pid
        self.lab.kill(pid)
        until(lambda: not alive(pid))
        head.head("--num-cpus", "0", port=self.joining.port)

        def back() -> None:
            until(lambda: head.states().count("ALIVE") == 1 + len(self.numbers))

        return back


class Over(Hoplo):
    """Three machines with a control node each, of which any one may be head; and workers."""

    heads = 3

    def start(self) -> Seat:
        self.three = Three(self.lab, "--num-cpus", "0")
        self.joining = self.three.joining
        for number in self.numbers:
            self.join(number)
        here = self.lab[self.seat]
        until(lambda: here.states().count("ALIVE") == 1 + len(self.numbers))
        return Seat([PLAYS, HOPLO], here.prefix, here.environment(BENCH_LOG=str(self.log)))

    def head(self) -> int:
        return self.three.head(self.lab[self.seat])

    def machine_dies(self, of_head: bool) -> Callable[[], None]:
        """With its control node. To be called later: it comes back when another one is head, and
        waits."""
        head = self.head()
        number = head if of_head else next(one for one in NUMBERS if one != head)
        self.three.kill(number)

        def back() -> None:
            if of_head:
                until(lambda: self.head() not in (0, head), what="another machine is head")
            self.three.back(number)

        return back


class Ray(Cluster):
    def start(self) -> Seat:
        self.ray = RayMachines(self.lab)
        self.ray.start(1, cpus=0)
        for number in self.numbers:
            self.join(number)
        more = {"BENCH_LOG": str(self.log), "BENCH_ADDRESS": self.lab.address(1)}
        return Seat([PLAYS, RAY], self.ray.prefix(1), {**self.ray.environment(), **more})

    def kill(self, number: int) -> None:
        self.ray.run(self.ray.leave_line(number))

    def join(self, number: int) -> None:
        self.ray.start(number)

    def close(self) -> None:
        super().close()
        if hasattr(self, "ray"):
            self.ray.close()


SYSTEMS: dict[str, type[Cluster]] = {HOPLO: Hoplo, RAY: Ray}
OVER = {HOPLO: Over}


@contextmanager
def cluster(
    system: str, workers: int, seat: int = 1, kinds: Mapping[str, type[Cluster]] = SYSTEMS
) -> Iterator[Any]:
    made = kinds[system](workers, seat)
    try:
        question.seat(system, made.start())
        yield made
    finally:
        made.close()


class Playing:
    """A round of a player, while other things happen."""

    def __init__(self, player: Player, measure: str, count: int) -> None:
        self.player = player
        self.request = {"do": "run", "measure": measure, "count": count}
        self.answer: dict[str, Any] = {}
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.answer = self.player.ask(self.request, seconds_max=300)
        except PlayerError as error:
            self.answer = {"error": str(error)}

    def end(self) -> Any:
        self.thread.join()
        if "error" in self.answer:
            raise PlayerError(self.answer["error"])
        return self.answer


# ------------------------------------------------------------------------------- figure 11a


@dataclass
class Told:
    """Of one system: when a step was over, and how many nodes there were from when on."""

    steps: list[tuple[int, int, float]] = field(default_factory=list)
    nodes: list[tuple[float, int]] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)

    def per_node(self) -> tuple[float, list[float]]:
        """Tasks a second of each node: before the first event, and in each calm time after one, as
        long as no chain is near its end."""
        last = max(at for _, _, at in self.steps)
        ends = [at for at, _ in self.nodes[1:]] + [last - DISTURBED_SECONDS]
        rates = []
        for (at, count), end in zip(self.nodes, ends, strict=True):
            start = max(at, self.first) + DISTURBED_SECONDS
            if end - start < CALM_SECONDS / 4:
                continue
            done = sum(start <= over < end for _, _, over in self.steps)
            rates.append(done / (end - start) / count)
        return rates[0], rates[1:]

    @property
    def first(self) -> float:
        return min(at for _, _, at in self.steps)

    @property
    def again(self) -> float:
        """The share of tasks that ran more than once, of all that ran."""
        return 1 - len({(chain, number) for chain, number, _ in self.steps}) / len(self.steps)

    def curve(self) -> list[tuple[float, float]]:
        """Tasks a second, each half second."""
        ends = [at - self.first for _, _, at in self.steps]
        bins = range(int(max(ends) * 2) + 1)
        return [(n / 2, 2.0 * sum(n <= 2 * end < n + 1 for end in ends)) for n in bins]


def chains(system: str) -> Told:
    told = Told()
    with cluster(system, WORKERS) as made:
        player = question.player(system)
        player.ask({"do": "open", "measure": "chains"})
        playing = Playing(player, "chains", STEPS)
        until(made.log.exists, 60)
        told.nodes.append((time.time(), WORKERS))
        events = [*made.numbers[LEFT:], *reversed(made.numbers[LEFT:])]
        for turn, number in enumerate(events):
            playing.thread.join(CALM_SECONDS + DISTURBED_SECONDS)
            count = told.nodes[-1][1]
            if turn < len(events) // 2:
                told.nodes.append((time.time(), count - 1))
                made.kill(number)
            else:
                made.join(number)
                told.nodes.append((time.time(), count + 1))
        told.wrong = playing.end()["wrong"]
        lines = made.log.read_text().splitlines()
        told.steps = [(int(a), int(b), float(c)) for a, b, c in (line.split() for line in lines)]
    return told


def ask_chains() -> None:
    calm = Row(
        "throughput of a node that is there, beside before: the lowest of the calm times",
        "",
        {},
        [at_least(0.95, "")],
        note=(
            f"from {WORKERS} nodes to {LEFT} and back; outside the second that follows each event."
            " More than 1: while results are made again, tasks that wait for them lend their CPUs,"
            " and afterwards more run at once than there are CPUs"
        ),
    )
    again = Row("tasks that ran more than once, of all that ran", "", {})
    right = Row("chains that ended with the right value, of all", "", {}, [at_least(1, "")])
    rows = [calm, again, right]
    for system in present():
        try:
            told = chains(system)
        except (PlayerError, AssertionError) as error:
            for asked in rows:
                asked.missing[system] = str(error)[:300]
            continue
        before, after = told.per_node()
        calm.values[system] = [min(after) / before]
        again.values[system] = [told.again]
        right.values[system] = [1 - len(told.wrong) / CHAINS]
        question.facts[f"{system}: tasks a second of a node, before; then, time by time"] = (
            f"{before:.2f}; {', '.join(f'{rate:.2f}' for rate in after)}"
        )
        curves[system] = {
            "tasks a second": told.curve(),
            "nodes": [(max(0.0, at - told.first), count) for at, count in told.nodes],
        }
    for asked in rows:
        question.add(asked)


curves: dict[str, Any] = {}

# ------------------------------------------------------------------------------- figure 11b


@dataclass
class Ledgers:
    """Of one system."""

    wrong: int
    again: float
    """Methods that ran again, for each actor that was on the node that died."""
    seconds: float
    """From the death to the last answer."""


def ledgers(system: str, measure: str) -> Ledgers:
    with cluster(system, LEDGER_WORKERS) as made:
        player = question.player(system)
        player.ask({"do": "open", "measure": measure})
        playing = Playing(player, measure, LEDGER_CALLS)
        places = Path(f"{made.log}.places")
        half = LEDGERS * LEDGER_CALLS / 2
        until(lambda: lines_of(made.log) > half, 120, "half of the calls have run")
        victim = made.numbers[0]
        began = time.time()
        made.kill(victim)
        answer = playing.end()
        lost = sum(name.strip("noderay") == str(victim) for name in places.read_text().split())
        ran = lines_of(made.log)
        again = (ran - LEDGERS * LEDGER_CALLS) / max(1, lost)
        question.facts[f"{system}, {measure}: actors that were lost"] = str(lost)
        return Ledgers(int(answer["wrong"]), again, answer["answered"] - began)


def lines_of(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def ask_ledgers() -> None:
    again = Row(
        "methods that ran again for each actor that was lost, checkpoints each 10 calls:"
        f" {LEDGERS} actors on {LEDGER_WORKERS} nodes, one dies",
        "",
        {},
        [at_most(25, "")],
        note="Ray restarts them without their state: calls that were on their way run again there",
    )
    without = Row("the same without checkpoints: all of their calls", "", {})
    right = Row(
        "replies that say where their call stands in the end, of all, with checkpoints",
        "",
        {},
        [at_least(1, "")],
    )
    seconds = Row("from the death to the last answer, with checkpoints", "s", {})
    for system in present():
        try:
            told = ledgers(system, f"{LEDGERS} ledgers")
        except (PlayerError, AssertionError) as error:
            for asked in (again, right, seconds):
                asked.missing[system] = str(error)[:300]
            continue
        again.values[system] = [told.again]
        right.values[system] = [1 - told.wrong / (LEDGERS * LEDGER_CALLS)]
        seconds.values[system] = [told.seconds]
    try:
        told = ledgers(HOPLO, f"{LEDGERS} ledgers without checkpoints")
        without.values[HOPLO] = [told.again]
    except (PlayerError, AssertionError) as error:
        without.missing[HOPLO] = str(error)[:300]
    for asked in (again, without, right, seconds):
        question.add(asked)


# ------------------------------------------------------------------------------- pauses


def ask_pauses() -> None:
    """A node runs tasks, one after the other, and dies; another one is there."""
    typical = Row("a node dies: the longest wait for a task, the median of the kills", "ms", {})
    worst = Row("a node dies: the longest wait for a task, the worst of the kills", "ms", {})
    for system in present():
        try:
            waits = pauses(system)
        except (PlayerError, AssertionError) as error:
            typical.missing[system] = worst.missing[system] = str(error)[:300]
            continue
        typical.values[system] = [statistics.median(waits)]
        worst.values[system] = [max(waits)]
    for asked in (typical, worst):
        question.add(asked)


def pauses(system: str) -> list[float]:
    waits = []
    with cluster(system, 2) as made:
        player = question.player(system)
        player.ask({"do": "open", "measure": "pause"})
        player.ask({"do": "run", "measure": "pause", "count": PAUSE_MS})
        for _ in range(KILLS):
            # What runs without a pause stays where it is.
            number = player.ask({"do": "run", "measure": "pause", "count": 100})["machine"]
            playing = Playing(player, "pause", PAUSE_MS)
            playing.thread.join(PAUSE_MS / 3e3)
            made.kill(number)
            waits.append(1e3 * playing.end()["seconds"])
            made.join(number)
    return waits


def ask_head_pauses() -> None:
    """The head dies and starts again on its folder; a program on another node calls tasks."""
    why = "its cluster ends with its head, unless it has a Redis"
    told_by_hoplo("the head dies: the longest wait for a task", why, head_pauses)


def head_pauses() -> list[float]:
    with cluster(HOPLO, 2, seat=2) as made:
        return disturbed("pause", PAUSE_MS, made.head_dies_and_starts_again)


def ask_control_pauses() -> None:
    """Over three control nodes, one of three machines is head: that one dies, or another one."""
    why = "it has one head, and no control nodes"
    for name, of_head in (
        ("the machine of the head and of a control node", True),
        ("the machine of another control node", False),
    ):
        for measure, what in (("pause", "a task"), ("names", "an actor with a name")):
            row = f"{name} dies: the longest wait for {what}"
            told_by_hoplo(row, why, partial(control_pauses, measure, of_head))


def control_pauses(measure: str, of_head: bool) -> list[float]:
    with cluster(HOPLO, 2, seat=4, kinds=OVER) as made:
        return disturbed(measure, 2 * PAUSE_MS, lambda: made.machine_dies(of_head))


def told_by_hoplo(row: str, why_not_ray: str, ask: Callable[[], list[float]]) -> None:
    """Two rows: the median of the kills, and the worst of them."""
    typical = Row(f"{row}, the median of the kills", "ms", {}, [at_most(SEEN_MS, "ms")])
    worst = Row(f"{row}, the worst of the kills", "ms", {})
    typical.missing[RAY] = worst.missing[RAY] = why_not_ray
    if HOPLO in present():
        try:
            waits = ask()
        except (PlayerError, AssertionError) as error:
            typical.missing[HOPLO] = worst.missing[HOPLO] = str(error)[:300]
        else:
            typical.values[HOPLO] = [statistics.median(waits)]
            worst.values[HOPLO] = [max(waits)]
    for asked in (typical, worst):
        question.add(asked)


def disturbed(
    measure: str, milliseconds: int, event: Callable[[], Callable[[], None]]
) -> list[float]:
    """The longest wait of each time in which that happens. What it gives sets the cluster right
    again, when nobody waits any more: it looks at the cluster all the time, and the machines of the
    lab share two cores with it."""
    waits = []
    player = question.player(HOPLO)
    player.ask({"do": "open", "measure": measure})
    player.ask({"do": "run", "measure": measure, "count": PAUSE_MS})
    for _ in range(KILLS):
        playing = Playing(player, measure, milliseconds)
        playing.thread.join(PAUSE_MS / 3e3)
        back = event()
        waits.append(1e3 * playing.end()["seconds"])
        back()
    return waits


# ------------------------------------------------------------------------------- all of it


def present() -> list[str]:
    left = set(question.options.without)
    if versions()[RAY] == NOT_INSTALLED:
        left.add(RAY)
    return [system for system in SYSTEMS if system not in left]


def main() -> None:
    # Told to end, it takes its machines away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench/faults.py: told to end"))
    ask_chains()
    ask_ledgers()
    ask_pauses()
    ask_head_pauses()
    ask_control_pauses()
    question.finish()
    if not question.options.only:
        Path(RESULTS / "faults_curves.json").write_text(json.dumps(curves) + "\n")


main()
