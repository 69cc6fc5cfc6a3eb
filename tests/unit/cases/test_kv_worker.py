"""The worker that judges reads, against a small scheduler of our own: right as it stands, and wrong in each way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from cases.kv_shadow import Group
from cases.kv_worker import Life, Scheduled, Seen, play
from cases.patterns import Chunked, Full


@dataclass
class Ours:
    """One request at a time, no prefix cache; the chunked group gives blocks back when their chunk is over.

    `fault` names what it does wrong.
    """

    fault: str = ""
    groups: tuple[Group, ...] = (Group(Chunked(8), 4), Group(Full(), 4))
    blocks: int = 40
    step_tokens: int = 6
    overlapped: bool = False
    waiting: list[tuple[str, list[int], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = list(range(self.blocks - 1, 0, -1))
        self._name = ""

    def submit(self, name: str, prompt: Sequence[int], outputs: int) -> None:
        self.waiting.append((name, list(prompt), outputs))

    def schedule(self) -> list[Scheduled]:
        anew = not self._name
        if anew:
            if not self.waiting:
                return []
            self._name, prompt, self._outputs = self.waiting.pop(0)
            self._computed, self._known, self._end = 0, len(prompt), len(prompt) + self._outputs
            self._tables: tuple[list[int], ...] = tuple([] for _ in self.groups)
            self._drafts = 0
        tokens = min(self._known - self._computed + (self.fault == "runs ahead"), self.step_tokens)
        drafts = self._drafts if self._computed + tokens == self._known else 0
        end = self._computed + tokens + drafts
        gone = (self._computed + (2 if self.fault == "frees too soon" else 0)) // 8 * 8 // 4
        for column in range(min(gone, len(self._tables[0]))):
            if self._tables[0][column]:
                self._pool.append(self._tables[0][column])
                self._tables[0][column] = 0
        new = []
        for table in self._tables:
            blocks = [self._pool.pop() for _ in range(-(-end // 4) - len(table) - (self.fault == "gives too few"))]
            if self.fault == "gives null" and blocks and table:
                blocks[0] = 0
            if self.fault == "gives twice" and table and blocks:
                blocks[0] = table[0] or blocks[0]
            table += blocks
            new.append(blocks)
        self._now = (tokens, drafts)
        computed, self._computed = self._computed, end
        return [Scheduled(self._name, computed, tokens + drafts, drafts, tuple(new), anew)]

    def report(self, sampled: Mapping[str, list[int]], drafts: Mapping[str, list[int]]) -> None:
        tokens = sampled[self._name]
        if self.fault != "keeps drafts":
            self._computed -= self._now[1] - max(0, len(tokens) - 1)
        self._known += len(tokens)
        self._drafts = len(drafts[self._name])
        if self._known >= self._end:
            for table in self._tables:
                self._pool += [block for block in table if block][self.fault == "keeps a block" :]
            self._name = ""

    def table(self, name: str) -> tuple[list[int], ...]:
        assert name == self._name
        return self._tables

    def free(self) -> int:
        return len(self._pool)


def lives(windows: tuple[tuple[int, int], ...] = ((3, 0), (3, 2), (2, 2), (0, 0))) -> list[Life]:
    """Prompts that end before, at and after a chunk border."""
    rng = np.random.default_rng(1)
    return [Life(f"life-{n}", rng.integers(0, 99, n + 30), n, 20, windows) for n in (6, 8, 9, 15)]


def test_a_right_scheduler_has_no_fault() -> None:
    assert list(play(Ours(), lives(), overlapped=False, onlooker=None)) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("frees too soon", "no longer its own"),
        ("gives too few", "needs 2"),
        ("gives null", "null block"),
        ("gives twice", "not its own"),
        ("keeps drafts", "not its own"),
        ("runs ahead", "are known"),
        ("keeps a block", "blocks are held"),
    ],
)
def test_a_fault_is_noticed(fault: str, words: str) -> None:
    found = list(play(Ours(fault), lives(), overlapped=False, onlooker=None))
    assert any(words in line for line in found), found


def test_a_worker_reads_what_is_there_and_not_what_the_scheduler_says() -> None:
    """A scheduler that frees too soon and keeps it from its own table is noticed when the block changes hands."""

    class Hides(Ours):
        def table(self, name: str) -> tuple[list[int], ...]:
            return tuple(self.worker_tables)

        def schedule(self) -> list[Scheduled]:
            step = super().schedule()
            for one in step:
                if one.anew:
                    self.worker_tables: list[list[int]] = [[] for _ in one.blocks]
                for table, blocks in zip(self.worker_tables, one.blocks, strict=True):
                    table += blocks
            return step

    found = list(play(Hides("frees too soon"), lives(), overlapped=False, onlooker=None))
    assert found, "nothing noticed"
    assert all("reads" in line for line in found), found


def test_a_scheduler_that_stands_still_is_noticed() -> None:
    class Idle(Ours):
        def schedule(self) -> list[Scheduled]:
            return []

    assert list(play(Idle(), lives(), overlapped=False, onlooker=None)) == [
        "step 0: nothing is scheduled, and 4 requests have not finished"
    ]


def test_an_onlooker_sees_each_step_and_may_object() -> None:
    steps: list[Seen] = []

    def look(seen: Seen) -> Iterator[str]:
        steps.append(seen)
        if len(steps) == 3:
            yield "enough"

    assert list(play(Ours(), lives(), overlapped=False, onlooker=look)) == ["step 2: enough"]
    # The first prompt of six tokens, then windows of a token and three drafts, all of them wrong at first.
    assert [(seen.query_lens, seen.seq_lens) for seen in steps[:2]] == [((6,), (6,)), ((4,), (10,))]
