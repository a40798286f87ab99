"""gRPC in Python: a server in another process, over a unix socket, messages that are bytes."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
from player import Player
from ray_like import latencies

MIB = 1 << 20
CHUNK = 2 * MIB
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, request: bytes, _context: object) -> bytes:
        (x,) = pickle.loads(request)
        self.count += x
        return pickle.dumps(self.count)


def receive(chunks, _context: object) -> bytes:
    """A gigabyte in order, laid into memory that is there already; one byte a page is read."""
    at = 0
    for chunk in chunks:
        memory[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    return pickle.dumps(int(memory[:at:4096].sum()))


memory: np.ndarray


def serve(address: str, ready) -> None:
    global memory
    memory = np.zeros(1 << 30, np.uint8)
    server = grpc.server(futures.ThreadPoolExecutor(1), options=OPTIONS)
    handlers = {
        "add": grpc.unary_unary_rpc_method_handler(Counter().add),
        "receive": grpc.stream_unary_rpc_method_handler(receive),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    server.add_insecure_port(address)
    server.start()
    ready.set()
    server.wait_for_termination()


play = Player()
channel: grpc.Channel


@play.measure("unary.one")
def _():
    add = channel.unary_unary("/bench/add")

    def run(count):
        for _ in range(count):
            pickle.loads(add(pickle.dumps((1,))))

    yield run


@play.measure("unary.latency")
def _():
    add = channel.unary_unary("/bench/add")

    def once():
        pickle.loads(add(pickle.dumps((1,))))

    yield lambda count: {"latencies": latencies(once, count)}


@play.measure("share.1GiB")
def _():
    data = np.ones(1 << 30, np.uint8)
    send = channel.stream_unary("/bench/receive")

    def run(count):
        for _ in range(count):
            chunks = (data[at : at + CHUNK].tobytes() for at in range(0, len(data), CHUNK))
            assert pickle.loads(send(chunks)) == (1 << 30) // 4096

    yield run


if __name__ == "__main__":
    folder = tempfile.TemporaryDirectory()
    address = f"unix:{Path(folder.name) / 'grpc'}"
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    server = context.Process(target=serve, args=(address, ready), daemon=True)
    server.start()
    ready.wait(30)
    channel = grpc.insecure_channel(address, options=OPTIONS)
    play.serve(server.kill)
