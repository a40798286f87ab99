"""Simulation (OSDI'18, table 4): 3n uneven rollouts on n cores, barriers against tasks."""

from harness import RESULTS, Cell, Question, row, times

question = Question(
    "simulation",
    "Simulation (OSDI'18, table 4)",
    {
        "hoplo, 1 core": ["play_hoplo.py", "1"],
        "hoplo, 2 cores": ["play_hoplo.py", "2"],
        "ray, 1 core": ["play_ray.py", "1"],
        "ray, 2 cores": ["play_ray.py", "2"],
        "mpi": ["play_mpi.py"],
    },
)
rows = []
for cores in (1, 2):
    on = "1 core" if cores == 1 else "2 cores"
    rows.append(
        row(
            f"Pendulum-v1, 3n rollouts on n = {cores}",
            "steps/s",
            f"rollouts.{cores}",
            {
                "hoplo": Cell(f"hoplo, {on}", f"rollouts.{cores}", 2),
                "ray": Cell(f"ray, {on}", f"rollouts.{cores}", 2),
                "MPI, barriers": Cell("mpi", f"rollouts.{cores}", 2),
            },
            goals=[times(0.95 if cores == 1 else 1, "MPI, barriers")],
            rounds=5,
        )
    )
    question.ask(rows[-1:])
    question.close_players()


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for column in ("hoplo", "ray", "MPI, barriers"):
        points = [(n + 1, r.medians[column]) for n, r in enumerate(rows) if column in r.medians]
        axes.plot([n for n, _ in points], [v for _, v in points], marker="o", label=column)
    axes.set(xlabel="cores", ylabel="timesteps/s", title="Pendulum-v1", xticks=[1, 2])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "simulation.png", dpi=110)


if not question.options.only:
    RESULTS.mkdir(parents=True, exist_ok=True)
    plot()
question.finish()
