"""How many calls of actors a second? Beside Ray, Monarch, Dask, gRPC and a bare ring."""

from harness import Cell, Question, at_least, row, times

HOPLO, RAY, DASK, MONARCH = "hoplo", "ray", "dask", "monarch"
question = Question(
    "actors",
    "Actors",
    {
        HOPLO: ["play_hoplo.py"],
        RAY: ["play_ray.py"],
        DASK: ["play_dask.py"],
        MONARCH: ["play_monarch.py"],
        "grpc": ["play_grpc.py"],
        "ring": ["play_ring.py"],
        "limits": ["play_limits.py"],
    },
)

question.ask(
    [
        row(
            "actor call, one at a time",
            "/s",
            "actor.one",
            {
                HOPLO: 5000,
                RAY: 300,
                DASK: 200,
                MONARCH: 300,
                "grpc": Cell("grpc", "unary.one", 1000),
                "ring": Cell("ring", "one", 5000),
                "ring, one core": Cell("ring", "one.pinned", 5000),
            },
            goals=[times(30, RAY), times(0.5, "ring"), times(5, "grpc")],
            note="the ratio to gRPC is that of latencies",
        ),
        row(
            "1,000 actor calls, then get all",
            "/s",
            "actor.batch",
            {
                HOPLO: 1000,
                RAY: 1000,
                DASK: 300,
                MONARCH: 1000,
                "ring": Cell("ring", "batch.1", 5000),
            },
            goals=[times(50, RAY), times(25, MONARCH)],
        ),
        row(
            "1,000 actor calls with a ref, then get all",
            "/s",
            "actor.ref_batch",
            {HOPLO: 1000, RAY: 500},
            goals=[times(80, RAY)],
        ),
        row(
            "1 caller to 4 actors, 1,000 calls",
            "/s",
            "actor.to_four",
            {HOPLO: 1000, RAY: 1000},
            goals=[times(40, RAY)],
        ),
        row(
            "2 callers (actors) to 2 actors, 1,000 calls",
            "/s",
            "actor.two_to_two",
            {HOPLO: 1000, RAY: 1000},
            goals=[times(40, RAY)],
        ),
        row(
            "async actor call, one at a time",
            "/s",
            "actor.async_one",
            {HOPLO: 2000, RAY: 200, MONARCH: 300},
            goals=[times(30, RAY)],
        ),
        row(
            "1,000 async actor calls, then get all",
            "/s",
            "actor.async_batch",
            {HOPLO: 1000, RAY: 1000, MONARCH: 1000},
            goals=[times(40, RAY)],
        ),
        row(
            "create an actor, call it, kill it",
            "/s",
            "actor.create",
            {HOPLO: 50, RAY: 2, DASK: 20, MONARCH: 2, "fork": Cell("limits", "fork", 50)},
            goals=[at_least(100, "/s")],
            rounds=5,
        ),
    ]
)
question.finish()
