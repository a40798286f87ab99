"""How fast are objects: put, get, wait, arrays in and out? Beside Ray, Dask and memcpy."""

from harness import Cell, Question, at_most, row, times

HOPLO, RAY, DASK = "hoplo", "ray", "dask"
MIB = 1 << 20
question = Question(
    "objects",
    "Objects",
    {
        HOPLO: ["play_hoplo.py"],
        RAY: ["play_ray.py"],
        DASK: ["play_dask.py"],
        "limits": ["play_limits.py"],
    },
)

question.ask(
    [
        row(
            "put(0)",
            "/s",
            "put.zero",
            {HOPLO: 20_000, RAY: 500},
            goals=[times(500, RAY)],
            note="up to 100 KiB a value lies in its owner's memory, in Ray in its store",
        ),
        row("get of it", "/s", "get.zero", {HOPLO: 20_000, RAY: 1_000}, goals=[times(100, RAY)]),
        row(
            "put of 100 KiB",
            "/s",
            "put.100KiB",
            {
                HOPLO: 5_000,
                RAY: 500,
                "memcpy": Cell("limits", f"memcpy.{100 * 1024}", 5_000),
            },
            goals=[times(30, RAY)],
        ),
        row(
            "put of 100 MiB",
            "GB/s",
            "put.100MiB",
            {HOPLO: 20, RAY: 4, "memcpy": Cell("limits", f"memcpy.{100 * MIB}", 20)},
            goals=[times(0.8, "memcpy")],
            size=100 * MIB,
        ),
        row(
            "put of 256 MiB made by hoplo.empty",
            "us",
            "empty.256MiB",
            {HOPLO: 20, "1 MiB": Cell(HOPLO, "empty.1MiB", 500)},
            goals=[at_most(50, "us")],
            note="nothing is copied: the same for 1 MiB, beside it",
        ),
        row(
            "get of 100 MiB",
            "/s",
            "get.100MiB",
            {HOPLO: 20_000, RAY: 1_000},
            goals=[times(30, RAY)],
        ),
        row(
            "task with 10 MiB in and out, by ref",
            "/s",
            "array.ref",
            {HOPLO: 100, RAY: 40, DASK: 20, "local": Cell("limits", "array", 100)},
            goals=[times(0.8, "local")],
            note="x + 1 of a float64 array",
        ),
        row(
            "tasks with 10 MiB in and out, 10 at once",
            "/s",
            "array.ten",
            {HOPLO: 100, RAY: 40, "local": Cell("limits", "array.ten", 100)},
            goals=[times(0.8, "local")],
            note="on 2 workers; the local process holds 10 results, too",
        ),
        row(
            "task with 10 MiB in and out, by value",
            "/s",
            "array.value",
            {HOPLO: 100, RAY: 40, DASK: 10, "local": Cell("limits", "array", 100)},
            note="x + 1 of a float64 array that each call copies into the store first",
        ),
        row(
            "wait for all of 1,000 finished refs",
            "/s",
            "wait.all",
            {HOPLO: 500, RAY: 100},
            goals=[times(5, RAY)],
        ),
        row(
            "wait for 1,000 finished refs one by one",
            "/s",
            "wait.each",
            {HOPLO: 1000, RAY: 1000},
            goals=[times(5, RAY)],
        ),
    ]
)
question.finish()
