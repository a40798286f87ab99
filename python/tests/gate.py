"""A gate that tasks wait at. In a module of its own, since workers import it."""

from __future__ import annotations

import os
import tempfile


class Gate:
    """Who waits here sleeps in the kernel, as in a computation: a task keeps its CPU meanwhile."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._opened: int | None = None
        os.mkfifo(f"{folder}/pipe")

    def wait(self, value: object = None) -> object:
        """Gives `value` once the gate is open."""
        # The name is of no matter, the number of such files is.
        os.close(tempfile.mkstemp(dir=self.folder, prefix=f"arrived-{os.getpid()}-")[0])
        # A pipe opens for reading when somebody has it open for writing.
        os.close(os.open(f"{self.folder}/pipe", os.O_RDONLY))
        return value

    def open(self) -> None:
        """Lets everybody through, from now on."""
        if self._opened is None:
            self._opened = os.open(f"{self.folder}/pipe", os.O_RDWR | os.O_CLOEXEC)
            # Who comes after the test finds a plain file.
            os.close(os.open(f"{self.folder}/plain", os.O_CREAT | os.O_WRONLY))
            os.rename(f"{self.folder}/plain", f"{self.folder}/pipe")

    def arrived(self) -> int:
        """How often somebody came to wait."""
        return len(self.pids_arrived())

    def pids_arrived(self) -> list[int]:
        """The processes that came to wait."""
        names = os.listdir(self.folder)
        return [int(name.split("-")[1]) for name in names if name.startswith("arrived-")]

    def close(self) -> None:
        """At the end of the test."""
        if self._opened is not None:
            os.close(self._opened)

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "_opened": None}
