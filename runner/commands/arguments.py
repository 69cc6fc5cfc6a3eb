"""What the commands' arguments and options are called: one text for an option that several commands have."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from runner import __version__, candidates, matrix, output, select
from runner.model import Cell
from runner.options import EngineName, Obtained, default_matrix


def seconds(value: float | None) -> float | None:
    """A finite number."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("give a number of seconds")
    return value


MatrixFile = Annotated[
    Path | None,
    typer.Option(
        "--matrix", metavar="FILE", help="The matrix: by default matrix.yaml here, else the one that is shipped."
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        "-f",
        metavar="EXPR",
        help="Only these cells: a label (sm100, flashinfer, k3), an alias (b200, 10.0a), an id or a glob over ids, "
        "axis=value, axis!=value, spec_k>=3. Comma = or, several --filter = and, different axes in one = and.",
    ),
]
Tier = Annotated[str | None, typer.Option("--tier", metavar="NAME", help="Only the cells of a tier of the matrix.")]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "--candidate",
        metavar="NAME=PATH[@VLLM]",
        help="A vLLM that is no release, as a value of the vllm axis: a patch, a checkout or a wheel, over a release "
        "(by default the one that it fits or is nearest to). Runs instead of the releases unless a filter names some.",
    ),
]
ShardPart = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only part I of N, counted from 1.")]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="What starts workers; auto is docker where a daemon answers, else local; ray is auto on each node of a "
        "cluster.",
    ),
]
Address = Annotated[
    str,
    typer.Option("--address", metavar="ADDRESS", help="Of the Ray cluster: auto, HOST:PORT or ray://HOST:PORT."),
]
Evidence = Annotated[
    Obtained,
    typer.Option(
        "--evidence",
        help="device: cells that no GPU here serves end as skipped; emulated: as on a machine without a GPU.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Limit = Annotated[
    float | None,
    typer.Option(
        "--limit",
        metavar="SECONDS",
        min=0.1,
        callback=seconds,
        help="For the run: the cells in flight finish then, and `runner resume` goes on.",
    ),
]
RunKnownCrashes = Annotated[
    bool,
    typer.Option(
        "--run-known-crashes", help="Run those cells too that are known to crash, to use up the memory or to hang."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the random batches.")]


def counted(*names: str, help_: str) -> Any:
    """An option whose value is how often it is given."""
    return typer.Option(*names, count=True, show_default=False, metavar="", help=help_)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.emit(f"attnmatrix {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


def chart(matrix_file: Path | None, candidate: list[str] | None) -> matrix.Matrix:
    """The matrix that a command speaks of, with its candidates."""
    found = matrix.load(matrix_file or default_matrix())
    if not candidate:
        return found
    from runner.environments import fitting

    return candidates.joined(found, candidate, fitting.chooser(output.note, eager=False))


def selected(
    matrix_file: Path | None,
    filters: list[str] | None,
    tier: str | None,
    candidate: list[str] | None,
    shard: str | None,
) -> tuple[Cell, ...]:
    """The cells that a command speaks of."""
    part = select.parse_shard(shard) if shard is not None else None
    found = chart(matrix_file, candidate)
    return select.select(found, filters=filters or (), tier_name=tier, shard=part)
