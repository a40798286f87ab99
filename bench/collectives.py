"""How long collectives take on shaped links, beside what one connection carries.

    python bench/collectives.py [--nodes 4,8] [--megabytes 8,32] [--rounds 5]

Each node is in a network namespace of its own (tests/cluster/lab.py), whose links carry so many
bits a second each way that this machine's cores are not what is scarce. One *stream* is a TCP
connection between two of them with nothing around it, measured in the same lab: its time for the
bytes of one member is the optimum of a reduce and of a broadcast. Every node has one member, also
the head, where the result is made. Each round has members of its own; the clock begins when all are
made. Of those that are *late* a member, or a reader, comes each tenth of a second. What is small is
measured on links that are not shaped. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence

from harness import HERE

sys.path.insert(0, str(HERE.parent / "tests" / "cluster"))
from lab import Lab, why_not
from machines import Machine

MB = 10**6
RATES = {4: 1e9, 8: 500e6, 16: 200e6}
"""Bits a second of each link: together no more than the cores move."""

STREAM = """
import socket, sys, time
place, nbytes, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if place == "":
    server = socket.create_server(("0.0.0.0", 7001))
    say("ready")
    for _ in range(rounds):
        connection, _ = server.accept()
        got, buffer = 0, bytearray(1 << 20)
        began = time.perf_counter()
        while got < nbytes:
            got += connection.recv_into(buffer)
        say(time.perf_counter() - began)
        connection.close()
else:
    for _ in range(rounds):
        connection = socket.create_connection((place, 7001))
        connection.sendall(bytes(nbytes))
        connection.recv(1)  # until it is closed
heard()
"""

COLLECTIVES = """
import json, sys, time
import numpy as np
from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

hoplo.init(address="auto")
cases, nbytes, rounds, addresses = sys.argv[1], *map(json.loads, sys.argv[2:])
ids = {n["NodeManagerAddress"]: n["NodeID"] for n in hoplo.nodes()}
places = [NodeAffinitySchedulingStrategy(ids[a], soft=False) for a in addresses]
count, total, gap = len(places), sum(range(len(places))), 0.1
now = time.perf_counter  # one clock for all namespaces

@hoplo.remote(num_returns=2)
def member(number, nbytes, at):
    time.sleep(max(0, at - now()))
    return np.full(nbytes // 4, number, "f4"), now()

@hoplo.remote
def parts(number, nbytes):
    return [np.full(nbytes // count // 4, number, "f4") for _ in range(count)]

@hoplo.remote
def reads(refs, at=0.0):
    time.sleep(max(0, at - now()))
    began = now()
    value = hoplo.get(refs[0])
    return float(value[-1][-1] if isinstance(value, list) else value[-1]), began, now()

def at_each(function, *each):
    made = [function.options(scheduling_strategy=at) for at in places]
    return [one.remote(*(it(i) for it in each)) for i, one in enumerate(made)]

def coming(nbytes, at=lambda i: 0.0):
    "Members, and when each was made."
    return list(zip(*at_each(member, lambda i: i, lambda _: nbytes, at)))

def members(nbytes):
    refs = list(coming(nbytes)[0])
    hoplo.wait(refs, num_returns=count, fetch_local=False)
    return refs

def read(refs, want, at=lambda i: 0.0):
    got = hoplo.get(at_each(reads, refs, at))
    assert all(value == want(i) for i, (value, _, _) in enumerate(got)), got
    return got

def point_to_point(nbytes):
    refs = members(nbytes)
    began = now()
    assert hoplo.get(refs[1])[-1] == 1
    return now() - began

def broadcast(nbytes):
    refs = members(nbytes)
    began = now()
    return max(end for *_, end in read(lambda i: refs[:1], lambda i: 0)) - began

def reduce(nbytes):
    refs = members(nbytes)
    began = now()
    assert hoplo.get(hoplo.reduce(refs))[-1] == total
    return now() - began

def allreduce(nbytes):
    refs = members(nbytes)
    began = now()
    ref = hoplo.allreduce(refs)
    return max(end for *_, end in read(lambda i: [ref], lambda i: total)) - began

def gather(nbytes):
    refs = members(nbytes)
    began = now()
    assert len(hoplo.get(hoplo.gather(refs))) == count
    return now() - began

def all_to_all(nbytes):
    refs = at_each(parts, lambda i: i, lambda _: nbytes)
    hoplo.wait(refs, num_returns=count, fetch_local=False)
    began = now()
    rows = hoplo.all_to_all(refs)
    return max(end for *_, end in read(lambda i: rows[i : i + 1], lambda i: count - 1)) - began

def late_broadcast(nbytes):
    "The mean of the receivers, who come one after the other."
    refs = members(nbytes)
    began = now() + gap
    got = read(lambda i: refs[:1], lambda i: 0, lambda i: began + gap * i)[1:]
    return sum(end - began for _, began, end in got) / len(got)

def late(nbytes, collective, n):
    began = now() + gap
    refs, made = coming(nbytes, lambda i: began + gap * i)
    ended = collective(list(refs))
    return ended - sorted(hoplo.get(list(made)))[n - 1]

def late_reduce(nbytes):
    "From the last member on."
    def collective(refs):
        assert hoplo.get(hoplo.reduce(refs))[-1] == total
        return now()
    return late(nbytes, collective, count)

def first_half(nbytes):
    "From the last one of those that are taken."
    def collective(refs):
        value, taken = hoplo.get(list(hoplo.reduce(refs, n=count // 2, with_members=True)))
        assert value[-1] == sum(taken)
        return now()
    return late(nbytes, collective, count // 2)

def late_allreduce(nbytes):
    def collective(refs):
        ref = hoplo.allreduce(refs)
        return max(end for *_, end in read(lambda i: [ref], lambda i: total))
    return late(nbytes, collective, count)

for name in cases.split(","):
    case = globals()[name]
    case(min(nbytes, 1 << 20))  # workers and links are warm
    say(name, [case(nbytes) for _ in range(rounds)])
heard()
"""


def stream_seconds(lab: Lab, nbytes: int, rounds: int) -> list[float]:
    """From node 2 to node 1."""
    receiver = lab[1].program(STREAM, "", str(nbytes), str(rounds))
    assert receiver.heard() == "ready"
    sender = lab[2].program(STREAM, lab.address(1), str(nbytes), str(rounds))
    seconds = [float(receiver.heard()) for _ in range(rounds)]
    for program in (sender, receiver):
        program.tell()
        program.end()
    return seconds


def collectives(
    cases: Sequence[str], head: Machine, addresses: list[str], nbytes: int, rounds: int
) -> Iterator[tuple[str, list[float]]]:
    asked = (",".join(cases), *map(json.dumps, (nbytes, rounds, addresses)))
    program = head.program(COLLECTIVES, *asked)
    for _ in cases:
        name, seconds = program.heard()
        yield name, seconds
    program.tell()
    program.end()


def optima(nodes: int) -> dict[str, float]:
    """By case, in times of one member over one link."""
    shared = (nodes - 1) / nodes
    return {
        "point_to_point": 1,
        "broadcast": 1,
        "reduce": 1,
        "allreduce": 2 * shared,
        "gather": nodes - 1,  # all of them but one come over one link
        "all_to_all": shared,
        "late_broadcast": 1,
        "late_reduce": 1,
        "first_half": 1,
        "late_allreduce": 1,  # from the last member on, which has to reach all others
    }


SMALL = ("broadcast", "reduce", "allreduce", "gather", "all_to_all")


def large(nodes: int, rate: float, megabytes: list[int], only: list[str], rounds: int) -> None:
    optimum_of = optima(nodes)
    for size in megabytes:
        with Lab(nodes=nodes, rate=rate) as lab:
            lab.cluster()
            addresses = [lab.address(number) for number in range(1, nodes + 1)]
            stream = statistics.median(stream_seconds(lab, size * MB, rounds))
            cases = only or list(optimum_of)
            for name, seconds in collectives(cases, lab[1], addresses, size * MB, rounds):
                optimum = stream * optimum_of[name]
                median = statistics.median(seconds)
                spread = f"({min(seconds) / optimum:.2f}, {max(seconds) / optimum:.2f})"
                asked = f"{nodes:5}  {rate / 1e6:6.0f}  {size:7}  {name:14}"
                took = f"{optimum:9.3f}  {median:9.3f}  {median / optimum:6.2f}  {spread}"
                print(f"{asked}  {took}", flush=True)


def small(nodes: int, kilobytes: list[int], rounds: int) -> None:
    """What latency costs: nothing is shaped."""
    with Lab(nodes=nodes) as lab:
        lab.cluster()
        addresses = [lab.address(number) for number in range(1, nodes + 1)]
        for size in kilobytes:
            for name, seconds in collectives(SMALL, lab[1], addresses, size * 1000, rounds):
                median = 1000 * statistics.median(seconds)
                spread = f"({1000 * min(seconds):.2f}, {1000 * max(seconds):.2f})"
                asked = f"{nodes:5}  {'':6}  {size:4} KB  {name:14}"
                print(f"{asked}  {'':9}  {median:6.2f} ms  {spread}", flush=True)


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", default="4,8", help="as many nodes, with commas between")
    parser.add_argument("--megabytes", default="8,32", help="of each member")
    parser.add_argument(
        "--kilobytes", default="1,32", help="of each member, on links that are not shaped"
    )
    parser.add_argument("--only", default="", help="these cases: " + ", ".join(optima(2)))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if why := why_not():
        sys.exit(f"bench/collectives.py: {why}")
    print("nodes  Mbit/s       MB  what            optimum s   median s   ratio  (best, worst)")
    for nodes in map(int, words(options.nodes)):
        rate = RATES.get(nodes, 4e9 / nodes)
        large(
            nodes,
            rate,
            list(map(int, words(options.megabytes))),
            words(options.only),
            options.rounds,
        )
    if options.kilobytes and not options.only:
        small(8, list(map(int, words(options.kilobytes))), 20 * options.rounds)


if __name__ == "__main__":
    main()
