"""Builds batches as the model runner does, and watches the builder's buffers for what shows that one is too small.

An exception alone proves little: `torch.cumsum(out=)` into a slice that is too short never raises, it moves the storage
(or, if the slice is a view into something larger, writes into the neighbour). So the address and the storage size of
every tensor that the builder owns are compared before and after each build; and a batch that shows nothing is built
again between guard words.
"""

import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cases import bounds, owned, stand_ins, vllm_api
from cases.batches import Named, may_be_formed
from cases.causes import cause_of
from cases.guards import Guards, Outside
from cases.needs import REQUIRED, Counts, Need
from cases.owned import Storage
from cases.shrinking import smallest
from cases.stand_ins import OutOfRange
from cases.verdicts import Batch, Overflow, Overflowed

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Built:
    """One build: the step it was for, its metadata (None if it raised), and the buffers that overran on the way."""

    need: Need
    step: Any
    metadata: Any
    overflows: tuple[Overflow, ...]
    batch: Batch


class Auditor:
    """Builds batches on one deployment and watches the builder's buffers."""

    def __init__(self, deployment: vllm_api.Deployment) -> None:
        self.deployment = deployment
        self.cell = deployment.cell
        self._start_over()
        self._held: dict[str, tuple[int, Batch]] = {}
        self.smallest: dict[tuple[str, str], Overflow] = {}
        """Overflows that were cut down, by buffer and kind."""

    @property
    def border(self) -> int:
        """Tokens from one place where a row may end to the next."""
        return self.deployment.pattern.border(bounds.Limits.of(self.cell.load).longest)

    def need(self, batch: Batch) -> Need:
        """What a batch asks of the buffers."""
        return Need.of(batch, self.deployment.pattern, self.deployment.spec.block_size)

    def build(self, batch: Batch, *, shared_prefix: bool = True) -> Built:
        """Build one batch; what raises for any other reason than a buffer that is too small goes through."""
        need = self.need(batch)
        # a shared prefix: as many pages as a real step, without as much memory for what maps pages back
        step = vllm_api.step(self.deployment, batch, shared_prefix=shared_prefix)
        before, metadata = self._storages, None
        try:
            metadata = vllm_api.build(self.deployment, self.builder, step)
            self._storages = owned.storages(self.builder)
            overflows = tuple(_resized(before, self._storages, need.counts, batch))
        except OutOfRange as error:
            seen = self._seen_by_guards(step, error)
            overflows = (Overflow(error.buffer, error.required, error.allocated, "silent", batch, seen),)
        except Exception as error:
            self._storages = owned.storages(self.builder)
            by = raised(error, self._storages, need.counts, batch)
            # a buffer may have moved before: until 0.10.1 torch fills all of FlashInfer's
            overflows = (by,) if by else tuple(_resized(before, self._storages, need.counts, batch))
            if not overflows:
                raise
        if any(overflow.how != "raised" for overflow in overflows):  # the buffer has moved
            self._start_over()
        return Built(need, step, metadata, overflows, batch)

    def silent(self, built: Built) -> tuple[Overflow, ...]:
        """Build the batch of a build that showed nothing once more, between guard words: what was written outside."""
        for buffer, required_for in REQUIRED.items():
            if (required := required_for(built.need.counts)) > self._held.get(buffer, (0, built.batch))[0]:
                self._held[buffer] = (required, built.batch)
        outside, error = self._outside(built.step)
        if error is not None and not outside:
            raise error
        return tuple(_silent(one, built) for one in outside)

    def latent(self) -> tuple[Overflow, ...]:
        """The buffers that are shorter than the most any batch needs, though they held all batches so far.

        Only those that builds write on the cell's route: what is written is where a used buffer differs from that of a
        fresh builder. (A zero written into zeros is not seen.)
        """
        most = self._most()
        fresh = dict(owned.walk(self.deployment.new_builder()))
        found: dict[str, Overflow] = {}
        for name, storage in owned.storages(self.builder).items():
            buffer = owned.buffer(name)
            if buffer not in self._held or (required := REQUIRED[buffer](most)) <= storage.length:
                continue
            written = _written(storage.tensor, fresh.get(name))
            if written and (buffer not in found or storage.length < found[buffer].allocated):
                held, batch = self._held[buffer]
                detail = f"no batch tried needed more than {held} entries, and {written} were written; this one did"
                found[buffer] = Overflow(buffer, required, storage.length, "latent", batch, detail)
        return tuple(found.values())

    def _most(self) -> Counts:
        """The most virtual batches, tokens and pages of any batch, not all of the same one."""
        limits, pattern = bounds.Limits.of(self.cell.load), self.deployment.pattern
        return Counts(
            bounds.virtual_batches(limits, pattern),
            bounds.tokens(limits),
            bounds.pages(limits, pattern, self.deployment.spec.block_size),
        )

    def _outside(self, step: Any) -> tuple[list[Outside], Exception | None]:
        """What a build of the step writes outside the buffers, and what it raised.

        vLLM's real Triton kernel takes part, interpreted, where the step has few enough rows.
        """
        guards, error = self._guards, None
        try:
            with guards, stand_ins.COPY.by_the_real_kernel():
                vllm_api.build(self.deployment, self.builder, step)
        except Exception as raised:  # noqa: BLE001 - it may have gone on with what it wrote outside
            error = raised
        if guards.left_inside:
            self._start_over()
        return guards.outside(), error

    def _start_over(self) -> None:
        """With a fresh builder."""
        self.builder = self.deployment.new_builder()
        self._storages = owned.storages(self.builder)
        """Where the builder's buffers were when last looked at."""
        self._guards = Guards(self.builder)

    def _seen_by_guards(self, step: Any, error: OutOfRange) -> str:
        """Words on whether the real kernel, interpreted, wrote outside too where its stand-in says that it would."""
        outside, later = self._outside(step)
        if isinstance(later, OutOfRange):
            return "a stand-in's check of its bounds; the real kernel was not run for so many rows"
        past = next((o.past for o in outside if owned.buffer(o.name) == error.buffer), 0)
        assert past == error.required - error.allocated, (
            f"a stand-in says that {error}, and the real kernel wrote {past} entries past the end"
        )
        return f"the real kernel, interpreted, wrote {past} entries past the end"


def read(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor that vLLM may use again.

    A copy: numpy's view of a tensor pins its storage, and a later write that would have moved it raises instead.
    """
    return tensor.detach().clone().cpu().numpy()


@dataclass(frozen=True)
class Measured:
    """A tensor of one batch's metadata was measured: right, or `short` of the entries the batch needs."""

    short: Overflow | None = None


def measure(auditor: Auditor, named: Iterable[Named], one: Callable[[Auditor, Named], Measured | None]) -> None:
    """Overflowed with the first batch for which `one` finds its tensor short, cut down to its smallest.

    `one` gives None for a batch that has no such tensor; an assertion fails if that is so for all of them.
    """
    measured = [found for n in named if (found := one(auditor, n))]
    assert measured, "no batch had what this case measures: nothing was judged"
    short = next((found.short for found in measured if found.short), None)

    def shows(batch: Batch) -> Overflow | None:
        if not may_be_formed(batch, auditor.cell.load):
            return None
        found = one(auditor, Named("smaller", batch))
        return found.short if found else None

    if short:
        raise Overflowed([smallest(short, auditor.border, shows)])


def _resized(before: dict[str, Storage], after: dict[str, Storage], need: Counts, batch: Batch) -> Iterator[Overflow]:
    """Buffers whose storage moved under a view, being too short; a builder may replace one by a longer one."""
    for name, old in before.items():
        if not old.moved_to(new := after.get(name)):
            continue
        buffer = owned.buffer(name)
        assert buffer in REQUIRED, f"the storage of {buffer} moved during a build, and the audit knows no need for it"
        if REQUIRED[buffer](need) > old.length:
            detail = f"its storage went from {old.size} to {new.size} bytes under a view, nothing was raised"
            yield Overflow(buffer, REQUIRED[buffer](need), old.length, "resized", batch, detail)


def _silent(outside: Outside, built: Built) -> Overflow:
    """A write beside a buffer, by as much as the batch needs where that is known, else by as much as was seen."""
    buffer = owned.buffer(outside.name)
    known = REQUIRED[buffer](built.need.counts) if buffer in REQUIRED else 0
    seen = outside.allocated + max(outside.past, outside.before)
    detail = f"guard words changed {outside.past} entries past its end and {outside.before} before its start"
    return Overflow(
        buffer, known if known > outside.allocated else seen, outside.allocated, "silent", built.batch, detail
    )


def _written(used: torch.Tensor, fresh: Any) -> int:
    """Entries up to the last one, along the first dimension, in which a used buffer differs from a fresh one."""
    if not isinstance(fresh, torch.Tensor) or fresh.shape != used.shape or not used.dim():
        return 0
    differs = (used != fresh).flatten(1).any(1) if used.dim() > 1 else used != fresh
    return int(differs.nonzero().max()) + 1 if bool(differs.any()) else 0


def raised(error: Exception, storages: dict[str, Storage], need: Counts, batch: Batch) -> Overflow | None:
    """The buffer that vLLM's failing statement names, if it is too short for the batch; None blames something else.

    The statement is the innermost one of vLLM, or one in the same file that led to it: a helper that copies into a
    buffer knows it by another name. Only what torch and numpy raise for a wrong size counts, and nothing of ours.
    """
    if not isinstance(error, (ValueError, RuntimeError, IndexError)):
        return None
    allocated = {owned.buffer(name): storage.length for name, storage in storages.items()}
    short = {
        buffer: (required, allocated[buffer])
        for buffer, required_for in REQUIRED.items()
        if buffer in allocated and (required := required_for(need)) > allocated[buffer]
    }
    if not short:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    if Path(frames[-1].filename).parent == HERE:
        return None
    inside = next((frame.filename for frame in reversed(frames) if "vllm" in Path(frame.filename).parts), "")
    for frame in reversed(frames):
        statement = _statement(frame) if frame.filename == inside else ""
        if buffer := next((buffer for buffer in short if buffer in statement), None):
            others = [f"{other} (needs {r}, has {a})" for other, (r, a) in short.items() if other != buffer]
            detail = f"{type(error).__name__}: {error}" + (
                f"; too short as well: {', '.join(others)}" if others else ""
            )
            return Overflow(buffer, *short[buffer], "raised", batch, detail, cause_of(error))
    return None


def _statement(frame: traceback.FrameSummary) -> str:
    """The source of the statement a frame was in: it may span lines."""
    first, last = frame.lineno or 0, frame.end_lineno or frame.lineno or 0
    return "".join(linecache.getline(frame.filename, number) for number in range(first, last + 1))
