"""Who has a GPU: one worker at a time over all runners, none after a holder's death, none that is not fit."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from runner import dispatch
from runner.devices import Device
from runner.driver_log import DriverLog
from runner.engines.base import CannotStart
from runner.engines.docker import by_cdi
from runner.engines.fake import READY, Exit, FakeEngine, Step
from runner.engines.leased import LeasedEngine
from runner.engines.local import told
from runner.engines.walls import gpu_for_command_line, gpu_for_sdk
from runner.leases import Leases
from runner.logs import LogStore
from runner.matrix import Matrix
from runner.messages import Case, DeathBody, Done
from runner.model import CellFinished, CellOutcome, Evidence, Order, State
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


def leases(
    folder: Path, *found: Device, trouble=lambda uuid: "", ailing=lambda uuid: "", wait_s: float = 0.0
) -> Leases:
    return Leases(found, folder=folder, trouble=trouble, ailing=ailing, wait_s=wait_s)


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


def test_a_device_is_examined_when_it_comes_back(tmp_path: Path) -> None:
    broken: list[str] = []
    ours = leases(tmp_path, ONE, trouble=lambda _: "".join(broken), ailing=lambda _: "".join(broken), wait_s=30)
    lease = ours.take("sm90")
    broken.append("it fell off the bus")
    lease.give_back()  # the first of two failed checks in a row; the next one sets it aside without a wait
    with pytest.raises(CannotStart, match="no sm90 device is fit: NVIDIA H200 GPU-1: it fell off the bus"):
        ours.take("sm90")


def test_memory_that_is_not_free_yet_when_a_device_comes_back_is_no_failed_check(tmp_path: Path) -> None:
    """A worker that was killed holds its memory a moment longer: that is asked when the device is taken again."""
    busy, back = False, False

    def trouble(_uuid: str) -> str:
        nonlocal busy
        said = "70,000 MiB are in use" if busy else ""
        busy = busy and not back  # free once it was asked about after it came back
        return said

    ours = leases(tmp_path, ONE, trouble=trouble, wait_s=30)
    lease = ours.take("sm90")
    busy = True
    lease.give_back()
    back = True
    assert ours.take("sm90").device == ONE


@dataclass
class Driver:
    """What breaks when, as the health check and the driver's log tell it."""

    broken: set[str] = field(default_factory=set)
    log: DriverLog = field(default_factory=DriverLog)

    def trouble(self, uuid: str) -> str:
        return "it fell off the bus" if uuid in self.broken else ""


def on_devices(
    order: Order, driver: Driver, folder: Path, play: Callable[..., list[Step]], *, guarded: bool = True
) -> list[CellOutcome]:
    """The outcomes of an order over two devices, and what became of each worker's cells by the play."""
    fake = FakeEngine(play=play, openings=[[READY.model_copy(update={"guarded": guarded})]] * 4)
    engine = LeasedEngine(
        fake,
        leases(folder, ONE, TWO, trouble=driver.trouble, ailing=driver.trouble, wait_s=5),
        driver.log,
        driver.trouble,
    )
    finished: list[CellOutcome] = []
    dispatch.run(
        [order],
        engine=engine,
        jobs=1,
        timeout_s=5.0,
        on_event=lambda event: finished.append(event.outcome) if isinstance(event, CellFinished) else None,
        stop=StopSignal(),
        logs=LogStore(folder),
    )
    return finished


CRASH = DeathBody(signal="SIGABRT", exit_code=0, timed_out_after_s=0, silent_for_s=0, out_of_memory=False)


@pytest.mark.parametrize("told_by", ["the driver's log", "the health check"])
def test_a_crash_on_a_device_that_breaks_is_the_machines_and_the_cell_moves(
    order: Order, tmp_path: Path, told_by: str
) -> None:
    driver, crashed = Driver(), []

    def play(cell: str, _timeout: float) -> list[Step]:
        if crashed:
            return [Done(cell=cell, duration_s=1.0, death=None)]
        crashed.append(cell)
        if told_by == "the health check":
            driver.broken.add("GPU-1")
        else:
            driver.log.hear("GPU-1", 79)
        return [Done(cell=cell, duration_s=1.0, death=CRASH)]

    first, *_ = on_devices(order, driver, tmp_path, play)
    assert (first.cell.id, first.death, first.infra, first.attempts) == (crashed[0], None, "", 2)
    assert (
        "the worker was lost: NVIDIA H200 GPU-1 failed: "
        in (tmp_path / "cells" / crashed[0] / "attempt-1.log").read_text()
    )


def test_a_crash_by_a_write_out_of_range_is_the_products(order: Order, tmp_path: Path) -> None:
    driver = Driver()

    def play(cell: str, _timeout: float) -> list[Step]:
        driver.log.hear("GPU-1", 31)
        return [Done(cell=cell, duration_s=1.0, death=CRASH)]

    first, *_ = on_devices(replace(order, cells=order.cells[:1]), driver, tmp_path, play)
    assert first.death
    assert first.death.signal == "SIGABRT"
    assert first.attempts == 1


def test_a_failing_case_on_a_device_with_memory_errors_is_the_machines(order: Order, tmp_path: Path) -> None:
    driver = Driver()

    def play(cell: str, _timeout: float) -> list[Step]:
        driver.log.hear("GPU-1", 95)
        driver.log.hear("GPU-2", 95)
        return [Case(cell=cell, name="test_it", state=State.FAIL), Done(cell=cell, duration_s=1.0, death=None)]

    first, *_ = on_devices(replace(order, cells=order.cells[:1]), driver, tmp_path, play)
    assert first.cases == ()
    assert first.infra.startswith("lost 2 workers during this cell: NVIDIA H200 GPU-")
    assert "Xid 95: an uncontained memory error" in first.infra


def test_a_worker_that_dies_on_a_device_that_breaks_is_the_machines_even_where_a_cell_can_end_it(
    order: Order, tmp_path: Path
) -> None:
    driver = Driver()

    def play(_cell: str, _timeout: float) -> list[Step]:
        driver.log.hear("GPU-1", 79)
        driver.log.hear("GPU-2", 79)
        return [Exit("killed by SIGBUS")]

    first, *_ = on_devices(replace(order, cells=order.cells[:1]), driver, tmp_path, play, guarded=False)
    assert first.death is None
    assert "Xid 79" in first.infra


def test_the_worker_sees_its_device_and_no_other(order: Order) -> None:
    held = replace(order, device="GPU-1")
    assert told(held)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    (asked,) = gpu_for_sdk(held, cdi=False)
    assert asked == {
        "Driver": "", "Count": 0, "DeviceIDs": ["GPU-1"], "Capabilities": [["gpu"]], "Options": {},
    }  # fmt: skip
    (named,) = gpu_for_sdk(held, cdi=True)
    assert named == {
        "Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=GPU-1"], "Capabilities": [], "Options": {},
    }  # fmt: skip
    assert gpu_for_command_line(held, cdi=False) == ["--gpus=device=GPU-1"]
    assert gpu_for_command_line(held, cdi=True) == ["--device=nvidia.com/gpu=GPU-1"]
    for render in (gpu_for_sdk, gpu_for_command_line):
        with pytest.raises(CannotStart, match="without a lease"):
            render(order, cdi=False)
    assert gpu_for_sdk(replace(order, evidence=Evidence.EMULATED), cdi=True) == []
    assert "CUDA_VISIBLE_DEVICES" not in told(replace(order, evidence=Evidence.EMULATED))


def test_a_gpu_goes_by_its_cdi_name_where_docker_has_no_runtime_for_it(tmp_path: Path) -> None:
    """`docker info` of a daemon with the toolkit's runtime, with its CDI file alone, and with neither."""
    none, some = tmp_path / "none", tmp_path / "cdi"
    some.mkdir()
    (some / "nvidia.yaml").write_text("cdiVersion: 0.6.0\n")
    assert not by_cdi({"Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": [str(some)]})
    assert by_cdi({"Runtimes": {"runc": {}}, "CDISpecDirs": [str(none), str(some)]})
    assert not by_cdi({"Runtimes": {"runc": {}}, "CDISpecDirs": [str(none)]})
    assert not by_cdi({"Runtimes": {"runc": {}}, "CDISpecDirs": None})


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
