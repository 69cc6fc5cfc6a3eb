"""One engine per cell, started by the first case that asks for it."""

import pytest

from cases.arch import CASE
from cases.cell import Cell

if CASE == "engine":
    from cases.engine import warm
    from cases.engine.oracle import Answer
    from cases.engine.prompts import at_borders
    from cases.engine.serving import Served, serve

    warm.warm()


@pytest.fixture
def engine(request: pytest.FixtureRequest, cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> "Served":
    """The cell's engine; a case that comes after an overflow is skipped, as an engine that died serves nobody."""
    kept = request.config.stash.get(_ENGINE, (None, None))
    if kept[0] != cell:
        try:
            kept = (cell, serve(cell, tmp_path_factory.mktemp("model")))
        except Exception as error:  # noqa: BLE001 - each case of the cell is to say it
            kept = (cell, error)
        request.config.stash[_ENGINE] = kept
    served = kept[1]
    if isinstance(served, Exception):
        raise served
    if served.died:
        pytest.skip(f"the engine died in an earlier case of this cell: {served.died[0]}")
    request.node.user_properties.append(("resolved", served.resolved()))
    return served


@pytest.fixture
def answers(request: pytest.FixtureRequest, engine: "Served") -> "list[Answer]":
    """The engine's answers to the prompts at borders, all given at once; found once per cell."""
    kept = request.config.stash.get(_ANSWERS, (None, []))
    if kept[0] != engine.cell:
        kept = (engine.cell, engine.answers(at_borders(engine.sizes)))
        request.config.stash[_ANSWERS] = kept
    return kept[1]


_ENGINE = pytest.StashKey[tuple[Cell | None, "Served | Exception | None"]]()
_ANSWERS = pytest.StashKey[tuple[Cell | None, "list[Answer]"]]()
