"""What a command line asks of a run, and what the machine answers: the words between cli and session."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from runner.devices import Device
from runner.model import Evidence, Order
from runner.select import Shard

DEFAULT_TIMEOUT_S = 60.0


class EngineName(StrEnum):
    """What starts workers; `auto` is Docker where a daemon answers, else local; `ray` is that on a cluster's nodes."""

    AUTO = "auto"
    DOCKER = "docker"
    LOCAL = "local"
    RAY = "ray"


class Obtained(StrEnum):
    """Which evidence a run is to give: the best that can be had here, a device's alone, or none of a device."""

    BEST = "best"
    DEVICE = "device"
    EMULATED = "emulated"


class Sanitizer(StrEnum):
    """The tools of compute-sanitizer: reads and writes out of range, races, memory never written, wrong barriers."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The whole of `runner` without a command."""

    matrix: Path
    filters: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    """Vllms that are no releases, each as NAME=PATH or NAME=PATH@RELEASE."""
    tier: str | None = None
    shard: Shard | None = None
    engine: EngineName = EngineName.AUTO
    address: str = "auto"
    """Of the Ray cluster, where that is the engine."""
    jobs: int | None = None
    """Workers at the same time; None lets the run choose by the machine."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """For one cell."""
    silence_s: float = 0.0
    """For a cell that says nothing; 0 is as long as it may run."""
    reruns: int = 0
    """Of a cell with product trouble, to tell flakes."""
    limit_s: float | None = None
    """For the run: then the cells in flight finish, and no other begins."""
    out: Path | None = None
    """The run directory itself; None makes one under runs/."""
    json: bool = False
    """results.json on standard output instead of the heat map."""
    seed: int = 0
    """Of the random batches."""
    evidence: Obtained = Obtained.BEST
    require_device: bool = False
    """Whether a cell that no device served is trouble with the machine."""
    known: bool = True
    """Whether the known issues of the matrix count."""
    known_crashes: bool = False
    """Whether cells run that are known to crash, to use up the memory or to hang."""
    verbosity: int = 0
    """-1 and less: only the end; 0: progress; 1 and more: each case."""
    job: str = ""
    """The job of a plan that this run is, in a workflow of GitHub Actions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What this machine runs cells on; `engine` is never auto."""

    engine: EngineName
    why: str
    devices: tuple[Device, ...] = ()
    """Of this machine."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """How many devices of each arch the nodes of a cluster have."""
    cpus: int | None = None
    """How many workers without a device the nodes of a cluster have room for; None for this machine."""
    start_s: float = 300.0
    """For a worker to get ready: its imports, and in a cluster also a free place and the environment of its node."""

    def places(self, order: Order) -> float:
        """How many workers the order may have at the same time: one for each device, where it is for devices."""
        if order.evidence is not Evidence.DEVICE:
            return math.inf if self.cpus is None else self.cpus
        return self.elsewhere.get(order.arch, 0) + sum(device.arch == order.arch for device in self.devices)

    @property
    def device_archs(self) -> frozenset[str]:
        return frozenset(self.elsewhere) | {device.arch for device in self.devices}

    @property
    def jobs(self) -> int | None:
        """Workers at the same time that a cluster has room for; None for this machine."""
        return None if self.cpus is None else max(1, self.cpus + sum(self.elsewhere.values()))


def default_matrix() -> Path:
    """matrix.yaml here; else the one that ships with the package, or lies beside it in a checkout."""
    package = Path(__file__).parent
    here = Path("matrix.yaml")
    shipped = (package / "_bundled" / here, package.parent / here)
    return next((path for path in (here, *shipped) if path.exists()), here)
