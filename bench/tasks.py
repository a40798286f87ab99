"""How many tasks a second? Beside Ray, Dask, what needs no framework, and a bare ring."""

from harness import Cell, Question, at_most, fraction, row, times

HOPLO, RAY, DASK = "hoplo", "ray", "dask"
question = Question(
    "tasks",
    "Tasks",
    {
        HOPLO: ["play_hoplo.py"],
        RAY: ["play_ray.py"],
        DASK: ["play_dask.py"],
        "ring": ["play_ring.py"],
        "stdlib": ["play_stdlib.py"],
    },
)
RING = Cell("ring", "batch.1", 5000)
RINGS = Cell("ring", "batch.2", 5000)

question.ask(
    [
        row(
            "task, submit + get, one at a time",
            "/s",
            "task.one",
            {
                HOPLO: 5000,
                RAY: 200,
                DASK: 60,
                "executor": Cell("stdlib", "executor.one", 1000),
                "pool": Cell("stdlib", "pool.one", 2000),
                "ring": Cell("ring", "one", 5000),
                "ring, one core": Cell("ring", "one.pinned", 5000),
            },
            goals=[times(40, RAY), times(0.4, "ring")],
        ),
        row(
            "1,000 tasks, then get all",
            "/s",
            "task.batch",
            {HOPLO: 1000, RAY: 1000, DASK: 300, "ring": RING, "2 rings": RINGS},
            goals=[times(100, RAY), times(0.4, "ring", "2 rings")],
        ),
        row(
            "1,000 tasks with an int, then get all",
            "/s",
            "task.int_batch",
            {
                HOPLO: 1000,
                RAY: 1000,
                DASK: 300,
                "executor": Cell("stdlib", "executor.batch", 1000),
                "pool": Cell("stdlib", "pool.batch", 1000),
                "loky": Cell("stdlib", "loky.batch", 1000),
                "ring": RING,
                "2 rings": RINGS,
            },
            goals=[
                times(100, RAY),
                times(0.4, "ring", "2 rings"),
                times(6, "executor", "pool", "loky"),
            ],
        ),
        row(
            "f.map of an empty function over 200,000 items",
            "/s",
            "task.map",
            {HOPLO: 200_000, "pool": Cell("stdlib", "pool.map", 200_000)},
            goals=[times(1, "pool")],
        ),
        row(
            "hoplo.util.multiprocessing.Pool.map, 200,000 items",
            "/s",
            "pool.map",
            {HOPLO: 200_000, "pool": Cell("stdlib", "pool.map", 200_000)},
            goals=[times(1, "pool")],
        ),
        row(
            "chain of 100 dependent tasks",
            "/s",
            "task.chain",
            {HOPLO: 100, RAY: 100, DASK: 100},
            goals=[times(60, RAY)],
        ),
        row(
            "20,000 tasks queued at once",
            "/s",
            "task.batch",
            {HOPLO: 20_000, RAY: 5_000, DASK: 1_000},
            goals=[times(80, RAY)],
            rounds=5,
            note="Ray queues 5,000, Dask 1,000: rates, so that a round ends in time",
        ),
        row(
            "2 nested submitters of 500 tasks each",
            "/s",
            "task.nested",
            {HOPLO: 1000, RAY: 1000, "one submitter": Cell(HOPLO, "task.batch", 1000)},
            goals=[times(1, "one submitter")],
        ),
        row(
            "task with 1,000 ref arguments",
            "s",
            "refs.arguments",
            {HOPLO: 5, RAY: 2},
            goals=[fraction(10, RAY)],
        ),
        row(
            "task with 1,000 returns",
            "s",
            "refs.returns",
            {HOPLO: 5, RAY: 5},
            goals=[fraction(10, RAY)],
        ),
        row(
            "get one object that holds 10,000 refs",
            "s",
            "refs.inside",
            {HOPLO: 1, RAY: 1},
            goals=[at_most(0.02, "s")],
        ),
    ]
)
question.finish()
