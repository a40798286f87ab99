"""What the control store costs a laptop's tasks: a head, whose tables are on disk, beside none.

"hoplo" has joined a head (`hoplo start --head`): every actor, function and key is a record in the
log of its store before it is answered. "in memory" is a driver's own node, whose tables end with
it. The calls themselves never touch the store, so they are to cost the same.
"""

from harness import Question, row, times

HEAD, MEMORY = "hoplo", "in memory"
question = Question(
    "control_cost",
    "Control store: what it costs the tasks of one machine",
    {HEAD: ["play_hoplo.py", "2", "head"], MEMORY: ["play_hoplo.py", "2"]},
)


def cost(name: str, measure: str, count: int, reach: float | None = 0.97, note: str = ""):
    goals = [times(reach, MEMORY)] if reach else []
    counts = {HEAD: count, MEMORY: count}
    return row(name, "/s", measure, counts, goals=goals, rounds=21, note=note)


TWO_MODES = "a node goes at one of two rates for its life, 0.75 or 1.3 million; both have both"


question.ask(
    [
        cost("task, submit + get, one at a time, on a head", "task.one", 5000),
        cost("1,000 tasks, then get all, on a head", "task.batch", 1000, note=TWO_MODES),
        cost("actor call, one at a time, on a head", "actor.one", 5000),
        cost("1,000 actor calls, then get all, on a head", "actor.batch", 1000),
        cost("put and get of small values, on a head", "put.zero", 5000),
        cost("create actor, call, kill, on a head", "actor.create", 20, reach=None),
    ]
)
question.finish()
