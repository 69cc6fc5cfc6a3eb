"""The kinds of case that a cell owes its reader: declared once, and counted in each cell.

A case names its kind by the mark `kind`. A kind that is owed and of which no case judges the cell is a mistake of ours:
a mark that leaves out a backend that nobody had thought of, or a file that is not collected. What a case cannot judge
in a release (the mark `release`) is told in the results, so that a pass says what it is a pass of.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cases import routes
from cases.cell import Cell
from cases.releases import Version

Holds = Callable[[Cell], bool]


def _flashinfer(cell: Cell) -> bool:
    return cell.backend == "flashinfer"


def _by_trtllm_gen(cell: Cell) -> bool:
    return _flashinfer(cell) and cell.arch in routes.TRTLLM_GEN


@dataclass(frozen=True)
class Owed:
    """A kind of case, the cells that owe it, and the first release in which there is what it judges."""

    kind: str
    by: Holds = lambda _: True
    since: Version = (0, 0, 0)


OWED: dict[str, tuple[Owed, ...]] = {
    "metadata": (
        Owed("split"),
        Owed("buffers without a split"),
        Owed("buffers with the worst batches"),
        Owed("buffers of other layers"),
        Owed("what kernels are told"),
        Owed("nothing left behind"),
        Owed("attention"),
        Owed("batches that vLLM makes up"),
        Owed("padding"),
        Owed("random batches"),
        Owed("builder of each layer"),
        Owed("CUDA graphs"),
        Owed("kernels of the arch", _flashinfer),
        Owed("cumulative lengths of trtllm-gen", _by_trtllm_gen, since=(0, 13, 0)),
    ),
    "forward": (
        Owed("outputs without a split"),
        Owed("outputs wherever tokens stand"),
        Owed("reads of kernels"),
    ),
    "engine": (Owed("tokens of the model"),),
}
"""By `case` of the cell. A kind that is not here is owed nowhere."""


def lacking(cell: Cell, release: Version, found: Iterable[str]) -> list[str]:
    """The kinds that a cell owes in a release and that are not among those found."""
    there = set(found)
    owed = (one for one in OWED[cell.case] if one.by(cell) and release >= one.since)
    return [one.kind for one in owed if one.kind not in there]
