"""Stands for the workers: computes what a scheduler schedules on a shadow of the KV cache, and judges each read.

A worker keeps block tables as it is told of blocks: what the scheduler frees later stays in them, so a token that still
needs such a block would read whatever is there by then. Each step's keys are written first, then all its query tokens
read, as a layer does.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cases.kv_shadow import Group, Ints, Prints, Shadow, prints

NULL_PAGE = 0
"""vLLM's block pool keeps page 0: no key is ever in it."""

STEPS = 2000
"""Far more than any of our lives takes."""


@dataclass(frozen=True)
class Scheduled:
    """A request's part of a step: `tokens` to compute after the `computed` ones, the last `drafts` of them drafts.

    `blocks` are those that come to the request's table in each group, or all of its table if it starts `anew`.
    """

    name: str
    computed: int
    tokens: int
    drafts: int
    blocks: tuple[list[int], ...]
    anew: bool


@dataclass(frozen=True)
class Life:
    """A request: its text (prompt, output, and a few tokens more), and how its drafts fare.

    `windows`: in each verify window in turn, and again from the first, how many drafts there are, and how many of
    them are right. It arrives when `after` other requests have finished.
    """

    name: str
    text: Ints
    prompt: int
    outputs: int
    windows: tuple[tuple[int, int], ...]
    after: int = 0


class Scheduler(Protocol):
    """What is judged."""

    groups: tuple[Group, ...]
    blocks: int

    def submit(self, name: str, prompt: Sequence[int], outputs: int) -> None: ...
    def schedule(self) -> list[Scheduled]: ...
    def report(self, sampled: Mapping[str, list[int]], drafts: Mapping[str, list[int]]) -> None: ...
    def table(self, name: str) -> tuple[list[int], ...]: ...
    def free(self) -> int: ...


@dataclass
class _State:
    """What a worker knows of a request."""

    life: Life
    prints: Prints
    known: int
    tables: list[Ints] = field(default_factory=list)
    samplings: int = 0

    def drafts(self) -> int:
        """How many drafts the next window has."""
        return self.life.windows[(self.samplings - 1) % len(self.life.windows)][0]

    def right(self) -> int:
        """How many of its drafts are right; a request has no window before its first token is sampled."""
        return self.life.windows[(self.samplings - 1) % len(self.life.windows)][1] if self.samplings else 0


@dataclass(frozen=True)
class Ran:
    """A step as it was computed: for each request the query's end, and whether its tables hold what it reads."""

    sampled: dict[str, list[int]]
    drafts: dict[str, list[int]]
    rejected: dict[str, int]


@dataclass(frozen=True)
class Seen:
    """For an onlooker, after a step: the shadow, and per request its query, tables, and the prints of its text."""

    shadow: Shadow
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    tables: tuple[list[Ints], ...]
    prints: tuple[Prints, ...]


class Worker:
    """Block tables, the shadow, and what is wrong with them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.shadow = scheduler, Shadow(scheduler.groups, scheduler.blocks)
        self._states: dict[str, _State] = {}
        self._wrong_drafts = 0
        self.faults: list[str] = []

    def add(self, life: Life) -> None:
        self._states[life.name] = _State(life, prints(life.text), life.prompt)

    def finished(self, name: str) -> bool:
        state = self._states[name]
        return state.known >= state.life.prompt + state.life.outputs

    def run(self, step: Sequence[Scheduled], rejected: Mapping[str, int]) -> tuple[Ran, Seen]:
        """Compute a step. `rejected`: drafts that its scheduler took for right, not having heard of them yet."""
        reads: list[tuple[_State, int, int, Prints]] = []
        ran = Ran({}, {}, {})
        for one in step:
            state = self._states[one.name]
            self._take(state, one)
            start = one.computed - (0 if one.anew else rejected.get(one.name, 0))
            own, end = start + one.tokens - one.drafts, start + one.tokens
            if own > state.known:
                self._fault(one, f"computes token {own - 1}, and {state.known} are known")
            right = 0 if one.anew else min(state.right(), one.drafts)  # what fills up a first window is no token
            held = state.prints[:end].copy()
            for position in range(own + right, end):
                self._wrong_drafts += 1
                held[position] = self._wrong_drafts
            self._write(one, state, start, held)
            reads.append((state, start, end, held))
            ran.rejected[one.name] = one.drafts - right if own == state.known else 0
            new = 1 + right if own == state.known else 0
            ran.sampled[one.name] = state.life.text[state.known : state.known + new].tolist()
            state.known += new
            state.samplings += bool(new)
            ran.drafts[one.name] = [0] * state.drafts() if new else []
        for one, (state, start, end, held) in zip(step, reads, strict=True):
            self._read(one, state, start, end, held)
        seen = Seen(
            self.shadow,
            tuple(end - start for _, start, end, _ in reads),
            tuple(end for _, _, end, _ in reads),
            tuple(state.tables for state, *_ in reads),
            tuple(held for *_, held in reads),
        )
        return ran, seen

    def _take(self, state: _State, one: Scheduled) -> None:
        new = [np.array(ids, np.int64) for ids in one.blocks]
        if one.anew:
            state.tables = new
        else:
            state.tables = [np.concatenate(pair) for pair in zip(state.tables, new, strict=True)]

    def _write(self, one: Scheduled, state: _State, start: int, held: Prints) -> None:
        managers = self.scheduler.table(one.name)
        for g, (group, table) in enumerate(zip(self.scheduler.groups, state.tables, strict=True)):
            first = group.first(start, one.tokens)
            needed = group.pages(first, len(held))
            if len(table) < needed.stop:
                self._fault(one, f"has {len(table)} blocks in group {g} and needs {needed.stop}")
                state.tables[g] = table = np.resize(np.append(table, NULL_PAGE), needed.stop)
            held_by_manager = np.array(managers[g][needed], np.int64)
            if not (table[needed] != NULL_PAGE).all():
                self._fault(one, f"needs the null block for one of the keys {first} to {len(held) - 1} in group {g}")
            elif len(gone := np.flatnonzero(held_by_manager != table[needed])):
                block, key = table[needed][gone[0]], (needed.start + gone[0]) * group.block_size
                self._fault(one, f"needs block {block} for keys from {key} on in group {g}, which is no longer its own")
            self.shadow.write(g, table[start // group.block_size :], start % group.block_size, held[start:])

    def _read(self, one: Scheduled, state: _State, start: int, end: int, held: Prints) -> None:
        for g, (group, table) in enumerate(zip(self.scheduler.groups, state.tables, strict=True)):
            first = group.first(start, one.tokens)
            there = self.shadow.read(g, table[group.pages(first, end)], first % group.block_size, end - first)
            wrong = np.flatnonzero(there != held[first:])
            if len(wrong):
                keys = f"{len(wrong)} of the keys {first} to {end - 1}"
                self._fault(one, f"reads {keys} that are not its own in group {g}, the first at {first + wrong[0]}")

    def _fault(self, one: Scheduled, words: str) -> None:
        self.faults.append(f"{one.name}, {one.tokens} tokens after {one.computed} ({one.drafts} drafts), {words}")


def play(
    scheduler: Scheduler, lives: Sequence[Life], *, overlapped: bool, onlooker: Callable[[Seen], Iterator[str]] | None
) -> Iterator[str]:
    """Let requests live, step by step, to their end; what goes wrong, in words.

    `overlapped`: each step is scheduled before the scheduler hears of the last one's tokens.
    """
    worker, arriving, unheard = Worker(scheduler), deque(lives), deque[Ran]()
    here: set[str] = set()
    for number in range(STEPS):
        finished = sum(worker.finished(name) for name in here)
        while arriving and arriving[0].after <= finished:
            life = arriving.popleft()
            worker.add(life)
            here.add(life.name)
            scheduler.submit(life.name, life.text[: life.prompt].tolist(), life.outputs)
        if not arriving and finished == len(here) and not unheard:
            if scheduler.free() != scheduler.blocks - 1:
                yield f"{scheduler.blocks - 1 - scheduler.free()} blocks are held when all have finished"
            return
        step = scheduler.schedule()
        if not step and not unheard:
            yield f"step {number}: nothing is scheduled, and {len(here) - finished} requests have not finished"
            return
        rejected: dict[str, int] = {}
        for ran in unheard:
            rejected.update(ran.rejected)
        if step:
            ran, seen = worker.run(step, rejected)
            unheard.append(ran)
            faults = worker.faults or list(onlooker(seen) if onlooker else ())
            if faults:
                yield from (f"step {number}: {words}" for words in faults)
                return  # from here on one fault follows from another
        if len(unheard) > (overlapped and bool(step)):
            heard = unheard.popleft()
            scheduler.report(heard.sampled, heard.drafts)
    yield f"{len(here) - finished} requests have not finished after {STEPS} steps"
