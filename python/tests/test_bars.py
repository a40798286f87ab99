"""Progress bars of tasks: live and in place in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from hoplo import _bars

NODE = None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """What a terminal shows, which knows the few codes that bars need."""
        lines, row, column = [""], 0, 0
        for part in re.split(r"(\x1b\[\d*[A-Z]|[\r\n])", self.getvalue()):
            if part == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif part == "\r":
                column = 0
            elif part.startswith("\x1b["):
                if part.endswith("A"):
                    row -= int(part[2:-1])
                else:
                    assert part == "\x1b[J", part
                    lines[row] = lines[row][:column]
                    del lines[row + 1 :]
            else:
                line = lines[row]
                lines[row] = line[:column] + part + line[column + len(part) :]
                column += len(part)
        return lines[:-1]


def test_bars_are_drawn_in_place_and_what_is_printed_goes_above_them():
    terminal = Terminal()
    bars = _bars.Bars(terminal)
    bars.show("a", "first 1/9", ended=False)
    bars.show("b", "second 1/9", ended=False)
    assert terminal.screen() == ["first 1/9", "second 1/9"]
    bars.write(terminal, "a line\n")
    assert terminal.screen() == ["a line", "first 1/9", "second 1/9"]
    bars.show("a", "first 9/9", ended=True)
    assert terminal.screen() == ["a line", "first 9/9", "second 1/9"]
    bars.show("b", "second 2/9", ended=False)
    bars.close()
    assert terminal.screen() == ["a line", "first 9/9", "second 2/9"]
    bars.write(terminal, "below\n")
    assert terminal.screen() == ["a line", "first 9/9", "second 2/9", "below"]


def test_very_many_bars_are_shown_as_so_many_and_a_count():
    terminal = Terminal()
    bars = _bars.Bars(terminal)
    for number in range(_bars.SHOWN_MAX + 5):
        bars.show(str(number), f"bar {number}", ended=False)
    screen = terminal.screen()
    assert len(screen) == _bars.SHOWN_MAX
    assert screen[-1] == "... and 6 bars more"


def test_without_a_terminal_a_bar_is_a_line_at_its_end():
    stream = io.StringIO()
    bars = _bars.Bars(stream)
    for step in range(5):
        bars.show("a", f"{step}/4", ended=False)
    bars.show("a", "4/4", ended=True)
    assert stream.getvalue() == "4/4\n"


def test_what_is_no_bar_of_ours_is_printed_as_it_is(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    _bars.told("(f pid=1) ", f"a line{_bars.MARK}not json")
    assert stream.getvalue() == f"(f pid=1) a line{_bars.MARK}not json\n"


PROGRAM = """
import sys
import hoplo.ray as ray
from hoplo.ray.experimental import tqdm_ray

@ray.remote
def count(name, gates):
    bar = tqdm_ray.tqdm(desc=name, total=3, flush_interval_s=0)
    for gate in gates:
        bar.update()
        ray.get(gate.remote())
    bar.update()
    bar.close()

@ray.remote
def passes():
    return None

ray.init(num_cpus=3)
ray.get([count.remote(name, [passes, passes]) for name in ("left", "right")])
print("done", flush=True)
"""


def test_bars_of_two_tasks_are_live_in_the_terminal_of_their_driver(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=theirs, stderr=theirs
    ) as driver:
        os.close(theirs)
        shown = b""
        while True:
            try:
                some = os.read(terminal, 65536)
            except OSError:
                break  # the driver has ended
            if not some:
                break
            shown += some
        assert driver.wait(60) == 0, shown
    os.close(terminal)
    text = shown.decode()
    for name in ("left", "right"):
        # In place: the cursor goes up before a bar is drawn anew.
        assert re.search(rf"\x1b\[\d+A\r\x1b\[J[^\x1b]*{name}  \[", text), text
        assert re.search(rf"\(count pid=\d+\) {name}  \[#+\] 100%  3/3", text), text
    assert "hoplo-bar" not in text


def test_the_bars_of_a_process_that_has_ended_are_closed():
    terminal, stream = Terminal(), io.StringIO()
    for bars in (_bars.Bars(terminal), _bars.Bars(stream)):
        bars.show("a1.0", "(f) first 1/9", ended=False)
        bars.show("b2.0", "(g) second 1/9", ended=False)
        bars.show("a1.1", "(f) third 9/9", ended=False)
        bars.show("a1.1", "(f) third 9/9", ended=True)
        bars.end_those_of("a1")
        bars.end_those_of("a1")
    ended = "(f) first 1/9  (its process has ended)"
    assert terminal.screen() == ["(f) third 9/9", ended, "(g) second 1/9"]
    assert stream.getvalue() == f"(f) third 9/9\n{ended}\n"


def test_the_bars_of_all_processes_of_a_dead_node_are_closed(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for process in ("0000020000010001", "0000020000020002", "0000030000010001"):
        bar = {"id": f"{process}.0", "ended": False}
        _bars.told("(f pid=1) ", f"{process} 1/9{_bars.MARK}{json.dumps(bar)}")
    assert stream.getvalue() == ""
    _bars.told("() ", f'{_bars.MARK}{{"dead": "000002"}}')
    _bars.told("() ", f'{_bars.MARK}{{"dead": "000002"}}')
    ended = [f"(f pid=1) 00000200000{n}000{n} 1/9  (its node has died)\n" for n in (1, 2)]
    assert stream.getvalue() == "".join(ended)


KILLED = """
import os, signal, sys
import hoplo.ray as ray
from hoplo.ray.experimental import tqdm_ray

@ray.remote(max_retries=0)
def dies():
    bar = tqdm_ray.tqdm(desc="unlucky", total=3, flush_interval_s=0)
    bar.update()
    os.kill(os.getpid(), signal.SIGKILL)

ray.init(num_cpus=1)
try:
    ray.get(dies.remote())
except ray.exceptions.WorkerCrashedError as error:
    assert "hoplo-bar" not in str(error), str(error)
    print("died", flush=True)
"""


def test_bars_of_a_killed_worker_stayed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(KILLED)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "died\n"
    assert re.search(r"\(dies pid=\d+\) unlucky .* 1/3.*\(its process has ended\)\n", done.stderr)
