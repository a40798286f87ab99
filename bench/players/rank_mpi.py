"""A rank of MPI that does what `ranks.py` tells it. Its argument: the socket.

Buffers are numpy's, of float32, and made once for each size. Every result is looked at.
"""

import socket
import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
me, size = world.Get_rank(), world.Get_size()
total = sum(range(1, size + 1))


class Buffers:
    def __init__(self, nbytes):
        self.count = nbytes // 4
        self.mine = np.full(self.count, me + 1, "f4")
        self.got = np.zeros(self.count, "f4")
        self.all = None

    def clear(self, operation):
        self.got[-1] = 0
        if operation == "gather" and me == 0 and self.all is None:
            self.all = np.zeros(size * self.count, "f4")
        if operation == "broadcast":
            self.got[:] = me + 1


def point_to_point(it):
    if me == 1:
        world.Send(it.mine, 0)
    elif me == 0:
        world.Recv(it.got, 1)
        return it.got[-1], 2


def round_trip(it):
    if me == 0:
        world.Send(it.mine, 1)
        world.Recv(it.got, 1)
        return it.got[-1], 1
    if me == 1:
        world.Recv(it.got, 0)
        world.Send(it.got, 0)


def broadcast(it):
    world.Bcast(it.got, 0)
    return it.got[-1], 1


def reduce(it):
    world.Reduce(it.mine, it.got if me == 0 else None, MPI.SUM, 0)
    return (it.got[-1], total) if me == 0 else None


def allreduce(it):
    world.Allreduce(it.mine, it.got, MPI.SUM)
    return it.got[-1], total


def gather(it):
    world.Gather(it.mine, it.all, 0)
    return (it.all[-1], size) if me == 0 else None


def all_to_all(it):
    part = it.count // size
    world.Alltoall(it.mine[: size * part], it.got[: size * part])
    return it.got[size * part - 1], size


OPERATIONS = {
    one.__name__: one
    for one in (point_to_point, round_trip, broadcast, reduce, allreduce, gather, all_to_all)
}

teller = socket.socket(socket.AF_UNIX)
teller.connect(sys.argv[1])
told = teller.makefile("rw")
print(me, file=told, flush=True)
buffers = {}
for line in told:
    operation, nbytes, count, at = line.split()
    if nbytes not in buffers:
        buffers[nbytes] = Buffers(int(nbytes))
    it = buffers[nbytes]
    answer = []
    for _ in range(int(count)):
        it.clear(operation)
        if float(at):
            time.sleep(max(0, float(at) - time.perf_counter()))
        else:
            world.Barrier()
        began = time.perf_counter()
        found = OPERATIONS[operation](it)
        answer += [began, time.perf_counter()]
        if found is not None and found[0] != found[1]:
            answer = ["wrong:", *found]
            break
    print(*answer, file=told, flush=True)
