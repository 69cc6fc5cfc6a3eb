"""Who started a process or a container, so that the next run can tell leftovers from what is in use."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of some machine. The start time tells it from a later one with the same pid."""

    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Self:
        pid = os.getpid()
        return cls(socket.gethostname(), _boot(), _pid_namespace(), pid, _start_time(pid))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None where the text is none of ours."""
        parts = text.split("/")
        if len(parts) != 5 or not parts[3].isdecimal():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])

    def __str__(self) -> str:
        return f"{self.host}/{self.boot}/{self.pid_namespace}/{self.pid}/{self.started}"

    def is_dead(self) -> bool:
        """True only where that is certain: never about another machine or another container with the same daemon."""
        if self.host != socket.gethostname():
            return False
        if self.boot != _boot():
            return True
        return self.pid_namespace == _pid_namespace() and _start_time(self.pid) != self.started


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


def _pid_namespace() -> str:
    try:
        return Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """In clock ticks since boot; empty where there is no such process or it is a zombie."""
    _, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")  # the name before it may hold spaces
    fields = rest.split()
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
