"""The direct calls: latency of one actor call, and 1 GiB between two processes, beside gRPC."""

import statistics

from harness import RESULTS, Cell, PlayerError, Question, Row, fraction, row, times

question = Question(
    "direct",
    "Direct calls",
    {
        "hoplo": ["play_hoplo.py"],
        "ray": ["play_ray.py"],
        "grpc": ["play_grpc.py"],
        "monarch": ["play_monarch.py"],
        "ring": ["play_ring.py"],
    },
)
CALLS = {
    "hoplo": Cell("hoplo", "actor.latency", 5000),
    "ray": Cell("ray", "actor.latency", 300),
    "monarch": Cell("monarch", "actor.latency", 300),
    "grpc": Cell("grpc", "unary.latency", 1000),
    "ring": Cell("ring", "latency", 5000),
}


def latencies() -> tuple[dict[str, list[float]], dict[str, str]]:
    """Every call's microseconds, over rounds in turn; and why a system has none."""
    found: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for turn in range(2 if question.options.quick else 6):
        for name, cell in CALLS.items():
            if name in missing:
                continue
            count = cell.count // 50 if question.options.quick else cell.count
            player = question.player(cell.player)
            try:
                if not turn:
                    player.ask({"do": "open", "measure": cell.measure})
                request = {"do": "run", "measure": cell.measure, "count": count}
                answer = player.ask(request)
            except PlayerError as error:
                missing[name] = str(error)
                continue
            if turn:
                found.setdefault(name, []).extend(answer["latencies"])
    return found, missing


def add_rows(found: dict[str, list[float]], missing: dict[str, str]) -> None:
    for share, goals in ((50, [fraction(5, "grpc")]), (99, [])):
        asked = Row(f"actor call, one at a time: {share}th percentile", "us", {}, goals)
        asked.missing |= missing
        for name, calls in found.items():
            asked.values[name] = [statistics.quantiles(calls, n=100)[share - 1]]
        question.add(asked)


def plot(found: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, calls in found.items():
        calls = sorted(calls)
        shares = [(n + 1) / len(calls) for n in range(len(calls))]
        axes.plot(calls, shares, label=name)
    axes.set(xscale="log", xlabel="microseconds", ylabel="share of calls")
    axes.set_title("one actor call at a time")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "direct.png", dpi=110)


if not question.options.only:
    measured, failed = latencies()
    add_rows(measured, failed)
    plot(measured)
    question.close_players()
question.ask(
    [
        row(
            "1 GiB from one process to another",
            "GB/s",
            "share.1GiB",
            {"hoplo": 2, "ray": 1, "grpc": 1},
            goals=[times(1, "grpc")],
            size=1 << 30,
            rounds=5,
            note="the receiver reads one byte a page; gRPC streams chunks of 2 MiB",
        ),
    ]
)
question.finish()
