"""One connection of TCP from rank 1 to rank 0 with nothing around it, as `ranks.py` tells it.

Its arguments: the rank, the address of rank 0, the socket. Both know each other's clock, so it is
measured from when the sender begins until the last byte is there.
"""

import socket
import sys
import time

from ranks import connected

PORT = 7001
rank, address, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]

if rank == 0:
    server = socket.create_server((address, PORT))
    teller = socket.socket(socket.AF_UNIX)
    teller.connect(path)
    stream = None
else:
    stream = connected(address, PORT)
    teller = socket.socket(socket.AF_UNIX)
    teller.connect(path)
told = teller.makefile("rw")
print(rank, file=told, flush=True)
buffer = bytearray(1 << 20)

for line in told:
    operation, size, count, _ = line.split()
    assert (operation, count) == ("point_to_point", "1"), line
    nbytes = int(size)
    if stream is None:
        stream, _ = server.accept()
    if rank == 1:
        sent = b"." * nbytes
        began = time.perf_counter()
        stream.sendall(sent)
        assert stream.recv(1) == b"."
    else:
        left = nbytes
        while left:
            got = stream.recv_into(buffer, min(left, len(buffer)))
            assert got, "the sender is gone"
            left -= got
    ended = time.perf_counter()
    if rank == 0:
        stream.sendall(b".")
        began = ended
    print(began, ended, file=told, flush=True)
