"""The walls around a container, as one value: for Docker's SDK, which starts workers, and for its command line."""

import os
from dataclasses import dataclass, field
from typing import Any

from docker.types import DeviceRequest

from runner.engines.base import CannotStart
from runner.model import Evidence, Order

NOBODY = "65534:65534"
# Triton and torch.compile build shared objects in a cache below HOME and load them, so /tmp may hold code.
SCRATCH = "/tmp"  # noqa: S108 - a path in the container
_OPTIONS = "rw,exec,nosuid,nodev,size={size},mode=1777"


def user() -> str:
    """Whoever may read the cases, and never root."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else NOBODY


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """No network, no capability, no new privilege, no writable disk but a scratch folder in memory; and the limits."""

    memory: str = "8g"
    """Swap included, of which there is none beside it."""
    scratch: str = "1g"
    pids: int = 512
    user: str = field(default_factory=user)

    def for_sdk(self) -> dict[str, Any]:
        """As arguments of `containers.create`."""
        return {
            "network_mode": "none",
            "read_only": True,
            "tmpfs": {SCRATCH: _OPTIONS.format(size=self.scratch)},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "user": self.user,
            "pids_limit": self.pids,
            "mem_limit": self.memory,
            "memswap_limit": self.memory,
        }

    def for_command_line(self) -> list[str]:
        """As options of `docker run`."""
        return [
            "--network=none",
            "--read-only",
            f"--tmpfs={SCRATCH}:{_OPTIONS.format(size=self.scratch)}",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            f"--user={self.user}",
            f"--pids-limit={self.pids}",
            f"--memory={self.memory}",
            f"--memory-swap={self.memory}",
        ]


def gpu_for_sdk(order: Order, *, cdi: bool) -> list[DeviceRequest]:
    """The GPU that was leased; one that was not is a mistake of ours, and no container gets all of them."""
    if not _of_a_gpu(order):
        return []
    if cdi:
        return [DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={order.device}"])]
    return [DeviceRequest(device_ids=[order.device], capabilities=[["gpu"]])]


def gpu_for_command_line(order: Order, *, cdi: bool) -> list[str]:
    """The same, as options of `docker run`."""
    if not _of_a_gpu(order):
        return []
    return [f"--device=nvidia.com/gpu={order.device}"] if cdi else [f"--gpus=device={order.device}"]


def _of_a_gpu(order: Order) -> bool:
    if order.evidence is not Evidence.DEVICE:
        return False
    if not order.device:
        raise CannotStart("a container for a GPU was asked for without a lease on one")
    return True
