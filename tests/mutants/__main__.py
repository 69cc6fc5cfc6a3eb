"""Writes docs/mutants.md anew: `python -m tests.mutants`."""

import sys

from tests.mutants import table
from tests.mutants.client import running
from tests.mutants.everything import MUTANTS


def main() -> None:
    caught = {}
    with running() as cases:
        for mutant in MUTANTS:
            caught[mutant.name] = cases.caught(mutant)
            for case, words in caught[mutant.name].items():
                print(f"{mutant.name}\n    {case}: {words[:200]}", file=sys.stderr)
            if not caught[mutant.name]:
                print(f"{mutant.name}\n    SURVIVES", file=sys.stderr)
    table.PAGE.write_text(table.page(caught))


main()
