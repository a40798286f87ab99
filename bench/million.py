"""A million tasks queued behind a blocker: what memory each takes, how long all take."""

from harness import Cell, PlayerError, Question, Row, at_most

question = Question("million", "A million queued tasks", {"hoplo": ["play_hoplo.py"]})
COUNT = 20_000 if question.options.quick else 1_000_000
rows = {
    key: Row(name, unit, {"hoplo": Cell("hoplo", "task.million", COUNT)}, goals)
    for key, name, unit, goals in (
        ("bytes_queued", "memory of one queued task", "bytes", [at_most(1024, "bytes")]),
        ("bytes_done", "memory of one task once its result is there", "bytes", []),
        ("submit", "1,000,000 tasks submitted", "s", []),
        ("seconds", "1,000,000 tasks run, from the blocker's end", "s", [at_most(30, "s")]),
    )
}
for _ in range(2):
    # A fresh process each time: memory that the last round freed would hide what this one takes.
    player = question.player("hoplo")
    try:
        player.ask({"do": "open", "measure": "task.million"})
        answer = player.ask({"do": "run", "measure": "task.million", "count": COUNT})
    except PlayerError as error:
        for row in rows.values():
            row.missing["hoplo"] = str(error)
        break
    for key, row in rows.items():
        row.values.setdefault("hoplo", []).append(answer[key])
    question.close_players()
for row in rows.values():
    question.add(row)
question.finish()
