"""Who has a member's certificate and talks nonsense is heard by nobody, and stops nobody."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from far import where
from machines import alive
from test_strangers import tls_of

import hoplo

ROUNDS = 40


def rubbish(rng: random.Random) -> Iterator[bytes]:
    """Bytes as they come; messages whose lengths are right; one that promises more than comes."""
    body = rng.randbytes(rng.randrange(1, 2000))
    yield body
    yield len(body).to_bytes(4, "little") + body
    for kind in range(8):
        message = bytes([kind]) + body[: rng.randrange(64)]
        yield len(message).to_bytes(4, "little") + message
    yield (len(body) + 1).to_bytes(4, "little") + body


@pytest.mark.parametrize("whose", [0, 1])
def test_a_members_rubbish_costs_it_the_connection(far: Any, whose: int) -> None:
    """At the head's port, and at that of a node that joined, with that node's certificate."""
    before = [machine.pid for machine in far.machines]
    asked = far.machines[0] if whose == 0 else far.machines[1]
    [row] = [node for node in hoplo.nodes() if node["NodeID"] == asked.node_id]
    place = (row["NodeManagerAddress"], row["NodeManagerPort"])
    context = tls_of(far.machines[1].session)
    rng = random.Random(whose)
    tried = 0
    for _ in range(ROUNDS):
        for message in rubbish(rng):
            with (
                socket.create_connection(place, 10) as raw,
                context.wrap_socket(raw, server_hostname="hoplo") as peer,
            ):
                peer.sendall(message)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
                tried += 1
    assert tried == 11 * ROUNDS
    assert [machine.pid for machine in far.machines] == before
    assert all(alive(pid) for pid in before)
    for number in range(3):
        there = where.options(scheduling_strategy=far.on(number))
        assert hoplo.get(there.remote(), timeout=20) == far.ids[number]
