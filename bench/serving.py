"""Embedded serving (OSDI'18, table 3): a policy actor against the same model behind REST."""

from harness import RESULTS, Cell, Question, row, times
from workloads import SERVING

question = Question(
    "serving",
    "Embedded serving (OSDI'18, table 3)",
    {"hoplo": ["play_hoplo.py"], "ray": ["play_ray.py"], "rest": ["play_rest.py"]},
)
rows = [
    row(
        f"batches of 64 states of {kb} KB, model of {ms} ms",
        "states/s",
        f"serve.{kb}.{ms}",
        {
            "hoplo": 60,
            "ray": 30,
            "REST, JSON": Cell("rest", f"json.{kb}.{ms}", 1 if kb == 100 else 10),
            "REST, raw bytes": Cell("rest", f"bytes.{kb}.{ms}", 30),
        },
        goals=[times(10, "REST, JSON")] if kb == 100 else [],
        rounds=5,
        note=f"the model alone: {64_000 / ms:,.0f} states/s",
    )
    for kb, ms in SERVING
]
question.ask(rows)


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    columns = list(rows[0].cells)
    for place, column in enumerate(columns):
        heights = [r.medians.get(column, 0) for r in rows]
        spots = [n + 0.2 * (place - 1.5) for n in range(len(rows))]
        axes.bar(spots, heights, 0.19, label=column)
    axes.set_xticks(range(len(rows)), [f"{kb} KB\n{ms} ms" for kb, ms in SERVING])
    axes.set(ylabel="states/s", title="embedded serving: state size, model time", yscale="log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "serving.png", dpi=110)


if not question.options.only:
    RESULTS.mkdir(parents=True, exist_ok=True)
    plot()
question.finish()
