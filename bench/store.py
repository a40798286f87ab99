"""Store write throughput and IOPS against object size (OSDI'18, figure 9)."""

from harness import RESULTS, Cell, Question, Row, at_least, row, times

question = Question(
    "store",
    "Store write throughput (OSDI'18, figure 9)",
    {
        "hoplo": ["play_hoplo.py"],
        "ray": ["play_ray.py"],
        "limits": ["play_limits.py"],
    },
)
SIZES = [1 << n for n in range(10, 31, 2)]
ROUND_BYTES = 2 << 30


def name(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    raise ValueError(size)


def count(size: int, most: int) -> int:
    return max(2, min(most, ROUND_BYTES // size))


def goals(size: int):
    if size == 1 << 10:
        return [at_least(200e3, "/s")]
    return [times(0.8, "memcpy")] if size >= 1 << 20 else []


rows = [
    row(
        f"put of {name(size)}",
        "/s" if size == 1 << 10 else "GB/s",
        f"put.{size}",
        {
            "hoplo": count(size, 20_000),
            "ray": max(1, count(size, 500) // 4),
            "hoplo, 2 threads": Cell("hoplo", f"put.{size}.threads", count(size, 20_000)),
            "memcpy": Cell("limits", f"memcpy.{size}", count(size, 20_000)),
            "memcpy, 2 threads": Cell("limits", f"memcpy.{size}.threads", count(size, 20_000)),
        },
        goals=goals(size),
        size=size,
        rounds=5,
        note="lies in its owner's memory: hoplo's store is for more than 100 KiB"
        if size <= 100 << 10
        else "",
    )
    for size in SIZES
]
question.ask(rows)


def gigabytes(asked: Row, column: str) -> float:
    """A second, whatever the row's own unit is."""
    value = asked.medians[column]
    return value if asked.kind == "GB/s" else value * asked.size / 1e9


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for column in ("hoplo", "hoplo, 2 threads", "ray", "memcpy", "memcpy, 2 threads"):
        points = [(r.size, gigabytes(r, column)) for r in rows if column in r.medians]
        sizes, rates = [s for s, _ in points], [v for _, v in points]
        style = "--" if column.startswith("memcpy") else "-"
        left.plot(sizes, rates, style, marker=".", label=column)
        right.plot(sizes, [1e9 * v / s for s, v in points], style, marker=".", label=column)
    left.set(ylabel="GB/s", title="write throughput")
    right.set(ylabel="puts/s", title="IOPS", yscale="log")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("object size, bytes")
        axes.grid(alpha=0.3)
    left.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "store.png", dpi=110)


if not question.options.only:
    RESULTS.mkdir(parents=True, exist_ok=True)
    plot()
question.finish()
