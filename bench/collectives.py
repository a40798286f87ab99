"""How long collectives take on shaped links, beside what one connection carries.

    python bench/collectives.py [--nodes 4,8] [--megabytes 8,32] [--rounds 5]

Each node is in a network namespace of its own (tests/cluster/lab.py), whose links carry so many
bits a second each way that this machine's cores are not what is scarce. One *stream* is a TCP
connection between two of them with nothing around it, measured in the same lab: its time for the
bytes of one member is the optimum of a reduce and of a broadcast. Every node has one member, also
the head, where the result is made. Each round has members of its own; the clock begins when all are
made. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

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
nbytes, rounds, addresses = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
ids = {n["NodeManagerAddress"]: n["NodeID"] for n in hoplo.nodes()}
places = [NodeAffinitySchedulingStrategy(ids[a], soft=False) for a in addresses]

@hoplo.remote
def member(number, nbytes):
    return np.full(nbytes // 4, number, "f4")

@hoplo.remote
def reads(refs):
    array = hoplo.get(refs[0])
    return float(array[-1]), time.perf_counter()  # one clock for all namespaces

def members(nbytes):
    refs = [member.options(scheduling_strategy=at).remote(i, nbytes) for i, at in enumerate(places)]
    hoplo.wait(refs, num_returns=len(refs), fetch_local=False)
    return refs

def all_read(ref, want):
    readers = [reads.options(scheduling_strategy=at).remote([ref]) for at in places]
    got = hoplo.get(readers)
    assert all(value == want for value, _ in got), got
    return max(end for _, end in got)

total = sum(range(len(places)))

def reduce(refs):
    assert hoplo.get(hoplo.reduce(refs))[-1] == total
    return time.perf_counter()

def allreduce(refs):
    return all_read(hoplo.allreduce(refs), total)

def broadcast(refs):
    return all_read(refs[0], 0)

def gather(refs):
    assert len(hoplo.get(hoplo.gather(refs))) == len(refs)
    return time.perf_counter()

for name, collective in (("broadcast", broadcast), ("reduce", reduce), ("allreduce", allreduce),
("gather", gather)):
    collective(members(1 << 20))  # workers and links are warm
    times = []
    for _ in range(rounds):
        refs = members(nbytes)
        began = time.perf_counter()
        times.append(collective(refs) - began)
    say(name, times)
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
    head: Machine, addresses: list[str], nbytes: int, rounds: int
) -> dict[str, list[float]]:
    program = head.program(COLLECTIVES, str(nbytes), str(rounds), json.dumps(addresses))
    times = dict(program.heard() for _ in range(4))
    program.tell()
    program.end()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", default="4,8", help="as many nodes, with commas between")
    parser.add_argument("--megabytes", default="8,32", help="of each member")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if why := why_not():
        sys.exit(f"bench/collectives.py: {why}")
    print("nodes  Mbit/s    MB  what         optimum s   median s   ratio  (best, worst)")
    for nodes in map(int, options.nodes.split(",")):
        rate = RATES.get(nodes, 4e9 / nodes)
        for size in map(int, options.megabytes.split(",")):
            with Lab(nodes=nodes, rate=rate) as lab:
                lab.cluster()
                addresses = [lab.address(number) for number in range(1, nodes + 1)]
                stream = statistics.median(stream_seconds(lab, size * MB, options.rounds))
                times = collectives(lab[1], addresses, size * MB, options.rounds)
            # Of a gather all members but one come over one link.
            optima = {"gather": nodes - 1, "allreduce": 2 * (nodes - 1) / nodes}
            for name, seconds in times.items():
                optimum = stream * optima.get(name, 1)
                median = statistics.median(seconds)
                spread = f"({min(seconds) / optimum:.2f}, {max(seconds) / optimum:.2f})"
                asked = f"{nodes:5}  {rate / 1e6:6.0f}  {size:4}  {name:11}"
                took = f"{optimum:9.3f}  {median:9.3f}  {median / optimum:6.2f}  {spread}"
                print(f"{asked}  {took}", flush=True)


if __name__ == "__main__":
    main()
