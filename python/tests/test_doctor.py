"""The doctor reads a program and says what it uses of Ray."""

from __future__ import annotations

import pytest
from conftest import TREE

from hoplo import doctor


def test_the_doctor_finds_each_use_by_its_line() -> None:
    source = (
        "import ray as r\n"
        "import ray.util.queue as q\n"
        "from ray import tune\n"
        "from ray.util import ActorPool as Pool\n"
        "r.init(include_dashboard=True, runtime_env={'conda': 'x', 'pip': []}, nope=1)\n"
        "@r.remote(tensor_transport='nccl')\n"
        "def f(): pass\n"
        "f.options(num_gpus=1, blah=2), q.Queue(), q.Nope, Pool([]), r.dag.InputNode\n"
        "r.get(f.remote()), tune.run(f), r.ObjectRef.none()\n"
        "from ray.util.placement_group import PlacementGroup as G, nothing\n"
    )
    found = {(use.line, use.name, use.state) for use in doctor.uses_of(source)}
    there, without, missing = doctor.THERE, doctor.NO_EFFECT, doctor.NOT_THERE
    assert found == {
        (1, "ray", there),
        (2, "ray.util.queue", there),
        (3, "ray.tune", missing),
        (4, "ray.util.ActorPool", there),
        (5, "ray.init", there),
        (5, "init(include_dashboard=)", without),
        (5, "runtime_env['conda']", missing),
        (5, "init(nope=)", missing),
        (6, "ray.remote", there),
        (6, "remote(tensor_transport=)", missing),
        (8, "ray.dag.InputNode", there),
        (8, "options(blah=)", missing),
        (8, "ray.util.queue.Queue", there),
        (8, "ray.util.queue.Nope", missing),
        (8, "ray.util.ActorPool", there),
        (9, "ray.get", there),
        (9, "ray.tune", missing),
        (9, "ray.ObjectRef.none", missing),
        (10, "ray.util.placement_group.PlacementGroup", there),
        (10, "ray.util.placement_group.nothing", missing),
    }


def test_the_doctor_looks_at_nothing_but_ray() -> None:
    source = "import numpy, raya\nfrom . import ray\nx = object()\nx.ray.data\nnumpy.ray\n"
    assert doctor.uses_of(source) == []


@pytest.mark.parametrize(
    "program", sorted((TREE / "python/tests/ray_programs").glob("*.py")), ids=lambda p: p.stem
)
def test_the_doctor_finds_that_our_programs_run(program) -> None:
    uses = doctor.uses_of(program.read_text())
    assert uses
    assert [use for use in uses if use.state == doctor.NOT_THERE] == []


def test_the_doctor_tells_programs_apart_by_its_status(tmp_path, capsys) -> None:
    good, bad, none = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "none.py"
    good.write_text("import ray\nray.init()\n")
    bad.write_text("import ray.data\nimport ray.data\n")
    none.write_text("print(1)\n")
    assert doctor.main([str(good), str(none)]) == 0
    said = capsys.readouterr().out
    assert "0 not there, 0 no effect, 2 there" in said
    assert f"run it: python -m hoplo.ray {good}" in said
    assert f"{none}: uses nothing of Ray" in said
    assert doctor.main([str(good), str(bad)]) == 1
    assert "not there  ray.data  (lines 1, 2): hoplo has no datasets" in capsys.readouterr().out
    bad.write_text("import ray (\n")
    assert doctor.main([str(bad)]) == 2
    assert doctor.main([str(tmp_path / "missing.py")]) == 2
    assert doctor.main([]) == 2
    assert "bad.py:1:" in capsys.readouterr().err
