"""What this machine has, and for each thing that is missing, what to do about it."""

import dataclasses
import json as jsons
import os
import platform
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from runner import devices, output
from runner.environments import daemon, inventory, venv
from runner.environments.progress import size
from runner.worker import LANDLOCK_SIGNALS, landlock

_MACHINE_TROUBLE = 3
_COLOURS = {"ok": "green", "absent": "yellow", "bad": "red"}


class Grade(StrEnum):
    """`absent` narrows what can run; `bad` keeps everything from running."""

    OK = "ok"
    ABSENT = "absent"
    BAD = "bad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing looked at."""

    what: str
    grade: Grade
    found: str
    advice: str = ""


def run(*, json: bool = False) -> int:
    """Print the findings; 0 where cells can run on this machine, else 3."""
    findings = examine()
    if json:
        output.emit(jsons.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        output.emit_rich(_table(findings))
    return _MACHINE_TROUBLE if any(finding.grade is Grade.BAD for finding in findings) else 0


def examine() -> list[Finding]:
    """Everything looked at, in the order in which it matters."""
    docker = daemon.examine()
    built = inventory.everything()
    return [
        _python(),
        _docker(docker),
        _walls(docker),
        *_gpus(),
        _environments(built),
        _disk(built),
        _memory(),
        _cores(),
    ]


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        return Finding(what="Python", grade=Grade.OK, found=found)
    return Finding(
        what="Python",
        grade=Grade.BAD,
        found=found,
        advice="the locks that ship are for Linux on x86_64: run there, or name a lock of your own in matrix.yaml",
    )


def _docker(found: daemon.Daemon) -> Finding:
    if found.answers:
        return Finding(what="Docker", grade=Grade.OK, found=f"a daemon answers, version {found.version}")
    return Finding(what="Docker", grade=Grade.ABSENT, found=found.trouble, advice=found.advice)


def _walls(docker: daemon.Daemon) -> Finding:
    """What keeps a cell from the rest of the machine where it runs without a container."""
    version, root = landlock(), os.getuid() == 0
    files = "every file of this machine, as root" if root else "the files of this user"
    others = "other processes too" if not version else "no other process"
    if 0 < version < LANDLOCK_SIGNALS:
        others += " but by signals"
    kernel = f"Landlock, version {version}" if version else "this kernel has no Landlock"
    found = f"without a container a cell reaches {files}, the network, and {others} ({kernel})"
    if docker.answers or not (root or version < LANDLOCK_SIGNALS):
        return Finding(what="Walls", grade=Grade.OK, found=found)
    advice = "run code that you do not trust in containers" + (", or as a user that owns nothing" if root else "")
    return Finding(what="Walls", grade=Grade.ABSENT, found=found, advice=advice)


def _gpus() -> list[Finding]:
    discovery = devices.discover()
    if not discovery.devices:
        advice = "nothing, if this machine has none: cells of GPU archs run emulated"
        return [Finding(what="GPU", grade=Grade.ABSENT, found=discovery.reason, advice=advice)]
    return [
        Finding(
            what=f"GPU {device.index}",
            grade=Grade.OK,
            found=f"{device.name}, {device.arch}, {device.memory_mib} MiB, driver {device.driver}, {device.uuid}",
        )
        for device in discovery.devices
    ]


def _environments(built: list[inventory.Built]) -> Finding:
    broken = [one.name for one in built if one.state != "whole"]
    found = "; ".join(f"{one.kind} {one.name} ({size(one.bytes)})" for one in built if one.state == "whole")
    if broken:
        advice = f"broken: {', '.join(broken)}: the next run builds it again, `runner env clean` removes it"
        return Finding(what="Environments", grade=Grade.ABSENT, found=found or "none is whole", advice=advice)
    if not built:
        advice = "nothing: the first run builds one in a few minutes, and so does `runner env build`"
        return Finding(what="Environments", grade=Grade.ABSENT, found="none is built", advice=advice)
    return Finding(what="Environments", grade=Grade.OK, found=found)


def _disk(built: list[inventory.Built]) -> Finding:
    folder = venv.ROOT.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{size(free)} free at {folder}"
    if not os.access(folder, os.W_OK):
        advice = "environments are built under .runner/ of the current folder: run where you may write"
        return Finding(what="Disk", grade=Grade.BAD, found=f"{folder} is not writable", advice=advice)
    if free >= venv.NEEDED_BYTES:
        return Finding(what="Disk", grade=Grade.OK, found=found)
    ready = any(one.state == "whole" for one in built)
    return Finding(
        what="Disk",
        grade=Grade.ABSENT if ready else Grade.BAD,
        found=found,
        advice=f"building an environment takes {size(venv.NEEDED_BYTES)}: free some space",
    )


def _memory() -> Finding:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{size(pages)}"
    if limit := _cgroup_limit():
        found += f", of which this group of processes may take {size(limit)}"
    usable = min(pages, limit or pages)
    if usable >= 2 << 30:
        return Finding(what="Memory", grade=Grade.OK, found=found)
    advice = "a worker takes about 1 GB, and 2 GB with a large deployment: cells may end as oom"
    return Finding(what="Memory", grade=Grade.ABSENT, found=found, advice=advice)


def _cgroup_limit() -> int:
    """In bytes; 0 where there is none."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _cores() -> Finding:
    return Finding(what="Cores", grade=Grade.OK, found=f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}")


def _table(findings: list[Finding]) -> Table:
    table = Table("", "what", Column("found", overflow="fold"), Column("what to do", overflow="fold"), box=None)
    for one in findings:
        table.add_row(Text(one.grade, _COLOURS[one.grade]), one.what, Text(one.found), Text(one.advice))
    return table
