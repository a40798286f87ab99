"""An all_to_all over bare TCP: each rank sends each other one its part, all at once, with nothing
around it. It is told what to do as `ranks.py` says.

Its arguments: the rank, the addresses with commas between, the socket. A connection between each
two ranks stays from one time to the next; a time begins when each rank has heard a byte of all
others. Rooms are made once: nobody pays for fresh memory.
"""

import selectors
import socket
import sys
import time

from ranks import connected

PORT = 7002
rank, addresses, path = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
count = len(addresses)


def all_connected():
    """To each other rank: those in front of this one connect to it."""
    server = socket.create_server((addresses[rank], PORT), backlog=count)
    peers = {other: connected(addresses[other], PORT) for other in range(rank + 1, count)}
    for stream in peers.values():
        stream.sendall(bytes([rank]))
    for _ in range(rank):
        stream, _ = server.accept()
        peers[stream.recv(1)[0]] = stream
    for stream in peers.values():
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setblocking(False)
    return peers


def moved(peers, sent, rooms):
    """`sent` goes to each of them, while what they send fills their room."""
    selector = selectors.DefaultSelector()
    unsent, free = {}, {}
    for other, stream in peers.items():
        unsent[other], free[other] = memoryview(sent), memoryview(rooms[other])[: len(sent)]
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        selector.register(stream, both, other)
    while selector.get_map():
        for key, events in selector.select():
            other, stream = key.data, key.fileobj
            if events & selectors.EVENT_READ and free[other]:
                got = stream.recv_into(free[other])
                assert got, f"rank {other} is gone"
                free[other] = free[other][got:]
            if events & selectors.EVENT_WRITE and unsent[other]:
                unsent[other] = unsent[other][stream.send(unsent[other]) :]
            wants = selectors.EVENT_READ * bool(free[other])
            wants |= selectors.EVENT_WRITE * bool(unsent[other])
            if not wants:
                selector.unregister(stream)
            elif wants != key.events:
                selector.modify(stream, wants, other)
    selector.close()


peers = all_connected()
teller = socket.socket(socket.AF_UNIX)
teller.connect(path)
told = teller.makefile("rw")
print(rank, file=told, flush=True)
mine, rooms = b"", {}

for line in told:
    operation, size, times, _ = line.split()
    assert operation == "all_to_all", line
    nbytes = int(size) // count
    if len(mine) != nbytes:
        mine = bytes([rank]) * nbytes
        rooms = {other: bytearray(nbytes) for other in peers}
    spans = []
    for _ in range(int(times)):
        moved(peers, b"?", {other: bytearray(1) for other in peers})  # all are here
        began = time.perf_counter()
        moved(peers, mine, rooms)
        spans += [began, time.perf_counter()]
        for other, room in rooms.items():
            assert room[-1] == other, f"rank {other} sent {room[-1]}"
            room[-1] = rank
    print(*spans, file=told, flush=True)
