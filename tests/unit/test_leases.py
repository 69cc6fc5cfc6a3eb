"""Who has a GPU: one worker at a time over all runners, none after a holder's death, none that is not fit."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner import dispatch
from runner.devices import Device
from runner.engines.base import CannotStart
from runner.engines.docker import _devices as request
from runner.engines.fake import FakeEngine
from runner.engines.leased import LeasedEngine
from runner.engines.local import told
from runner.leases import Leases
from runner.logs import LogStore
from runner.matrix import Matrix
from runner.model import CellFinished, Evidence, Order
from runner.options import EngineName, Machine
from runner.plan import make_plan
from runner.select import select
from runner.stop import StopSignal

ONE = Device(index=0, uuid="GPU-1", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
TWO = Device(index=1, uuid="GPU-2", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
HOLDER = """
import sys, time
from pathlib import Path
from runner.devices import Device
from runner.leases import Leases
device = Device(index=0, uuid="GPU-1", name="", arch="sm90", memory_mib=1, driver="")
lease = Leases([device], folder=Path(sys.argv[1]), trouble=lambda _: "").take("sm90")
print("held", flush=True)
time.sleep(60)
"""


def leases(folder: Path, *found: Device, trouble=lambda uuid: "", wait_s: float = 0.0) -> Leases:
    return Leases(found, folder=folder, trouble=trouble, wait_s=wait_s)


@pytest.fixture
def order(shipped: Matrix) -> Order:
    chosen = select(shipped, filters=["sm90,triton_attn,small,c64,hybrid_on"])
    (found,) = make_plan(chosen, device_archs=frozenset({"sm90"})).orders
    assert found.evidence is Evidence.DEVICE
    return found


def test_each_worker_has_a_device_of_its_own(tmp_path: Path) -> None:
    ours = leases(tmp_path, ONE, TWO)
    held = [ours.take("sm90"), ours.take("sm90")]
    assert {lease.device.uuid for lease in held} == {"GPU-1", "GPU-2"}
    with pytest.raises(CannotStart, match=r"became free within 0 s: NVIDIA H200 GPU-1: held by process \d+"):
        ours.take("sm90")
    held[1].give_back()
    held[1].give_back()
    assert ours.take("sm90").device.uuid == held[1].device.uuid
    with pytest.raises(CannotStart, match="no sm100 device is fit: none was found"):
        ours.take("sm100")


def test_a_lease_holds_across_runners_and_ends_with_its_holder(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CannotStart, match=f"held by process {holder.pid}"):
            leases(tmp_path, ONE).take("sm90")
    finally:
        holder.kill()
        holder.communicate()
    assert leases(tmp_path, ONE).take("sm90").device == ONE


def test_a_device_that_fails_its_check_twice_is_set_aside_and_the_other_serves(tmp_path: Path) -> None:
    asked: list[str] = []

    def trouble(uuid: str) -> str:
        asked.append(uuid)
        return "3 uncorrected memory errors" if uuid == "GPU-1" else ""

    ours = leases(tmp_path, ONE, TWO, trouble=trouble)
    for _ in range(3):
        lease = ours.take("sm90")
        assert lease.device == TWO
        lease.give_back()
    assert asked.count("GPU-1") == 2
    with pytest.raises(CannotStart, match="GPU-1: 3 uncorrected memory errors"):
        leases(tmp_path, ONE, trouble=trouble, wait_s=5).take("sm90")


def test_what_recovers_is_not_set_aside(tmp_path: Path) -> None:
    answers = iter(["busy", "", "busy", "", "busy", ""])
    ours = leases(tmp_path, ONE, trouble=lambda _: next(answers), wait_s=30)
    for _ in range(3):
        ours.take("sm90").give_back()


def test_the_worker_sees_its_device_and_no_other(order: Order) -> None:
    from dataclasses import replace

    held = replace(order, device="GPU-1")
    assert told(held)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    (asked,) = request(held)
    assert asked == {
        "Driver": "", "Count": 0, "DeviceIDs": ["GPU-1"], "Capabilities": [["gpu"]], "Options": {},
    }  # fmt: skip
    with pytest.raises(CannotStart, match="without a lease"):
        request(order)
    assert request(replace(order, evidence=Evidence.EMULATED)) == []
    assert "CUDA_VISIBLE_DEVICES" not in told(replace(order, evidence=Evidence.EMULATED))


def test_a_run_has_as_many_workers_as_devices_and_gives_them_back(order: Order, tmp_path: Path) -> None:
    fake = FakeEngine()
    engine = LeasedEngine(fake, leases(tmp_path, ONE, TWO))
    on = Machine(engine=EngineName.LOCAL, why="", devices=(ONE, TWO))
    finished = []
    started = time.monotonic()
    dispatch.run(
        [order],
        engine=engine,
        jobs=6,
        timeout_s=5.0,
        on_event=lambda event: finished.append(event.outcome) if isinstance(event, CellFinished) else None,
        stop=StopSignal(),
        logs=LogStore(tmp_path),
        places=on.places,
    )
    assert len(finished) == len(order.cells)
    assert {outcome.environment["gpu"] for outcome in finished} == {"NVIDIA H200"}
    assert not any(outcome.infra for outcome in finished)
    assert len(fake.workers) <= 2
    assert time.monotonic() - started < 5
    assert {leases(tmp_path, d).take("sm90").device for d in (ONE, TWO)} == {ONE, TWO}, "none is held any more"
