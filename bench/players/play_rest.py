"""A policy behind FastAPI on uvicorn, called over one kept connection on the loopback."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import time

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from player import Player
from workloads import BATCH, SERVING, Policy, states_of


def serve(port: int) -> None:
    app = FastAPI()
    policies = {(kb, ms): Policy(kb, ms) for kb, ms in SERVING}

    @app.post("/json/{kb}/{ms}")
    async def as_json(kb: int, ms: int, request: Request):
        states = np.asarray(await request.json(), np.float32)
        return policies[kb, ms].evaluate(states).tolist()

    @app.post("/bytes/{kb}/{ms}")
    async def as_bytes(kb: int, ms: int, request: Request):
        states = np.frombuffer(await request.body(), np.float32).reshape(BATCH, -1)
        return Response(policies[kb, ms].evaluate(states).tobytes())

    # Kept while others have their turn.
    keep = 3600
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        access_log=False,
        timeout_keep_alive=keep,
    )


play = Player()
connection: http.client.HTTPConnection


def _post(path: str, body: bytes, kind: str) -> bytes:
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        data = answer.read()
    except (http.client.HTTPException, OSError):
        connection.close()  # so that the next request opens a new one
        raise
    assert answer.status == 200, data[:200]
    return data


for state_kb, model_ms in SERVING:

    @play.measure(f"json.{state_kb}.{model_ms}")
    def _(kb=state_kb, ms=model_ms):
        states = states_of(kb)

        def run(count):
            for _ in range(count):
                body = json.dumps(states.tolist()).encode()
                actions = np.asarray(
                    json.loads(_post(f"/json/{kb}/{ms}", body, "application/json"))
                )
                assert actions.shape == (BATCH, 4)
            return {"count": count * BATCH}

        yield run

    @play.measure(f"bytes.{state_kb}.{model_ms}")
    def _(kb=state_kb, ms=model_ms):
        states = states_of(kb)

        def run(count):
            for _ in range(count):
                body = states.tobytes()
                data = _post(f"/bytes/{kb}/{ms}", body, "application/octet-stream")
                assert np.frombuffer(data, np.float32).size == BATCH * 4
            return {"count": count * BATCH}

        yield run


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    server.start()
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.05)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    play.serve(server.kill)
