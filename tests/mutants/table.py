"""The page that says which case noticed which mutant."""

from collections.abc import Collection, Mapping
from pathlib import Path

from tests.mutants.everything import MUTANTS
from tests.mutants.mutants import Mutant

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"
HEAD = """\
# Mutants

Each line is a small fault, put at run time into vLLM, into a correction of it, or into what stands for a GPU, and the
cases whose verdict it changed. `python -m tests.mutants` writes this page; `tests/mutants` compares it with reality.

| mutant | in | caught by |
| --- | --- | --- |
"""


def line(mutant: Mutant, caught: Collection[str]) -> str:
    module, _, path = mutant.where.partition(":")
    where = f"`{module.rpartition('.')[2]}`: `{path}`" + (f", {mutant.correction}" if mutant.correction else "")
    return f"| {mutant.name} | {where} | {', '.join(f'`{case}`' for case in sorted(caught))} |\n"


def page(caught: Mapping[str, Collection[str]]) -> str:
    return HEAD + "".join(line(mutant, caught[mutant.name]) for mutant in MUTANTS)
