"""One engine per cell, started by the first case that asks for it."""

from typing import Any

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
def alone(request: pytest.FixtureRequest, engine: "Served") -> "list[Answer]":
    """The engine's answers to the prompts at borders, one after the other; found once per cell."""
    kept = request.config.stash.get(_ALONE, (None, []))
    if kept[0] != engine.cell:
        kept = (engine.cell, engine.answers_alone(at_borders(engine.sizes)))
        request.config.stash[_ALONE] = kept
    return kept[1]


@pytest.fixture
def record(request: pytest.FixtureRequest, engine: "Served") -> dict[str, Any]:
    """For what a case measures: it goes to what the result says was resolved."""
    measured = engine.resolved()
    request.node.user_properties.append(("resolved", measured))
    return measured


_ENGINE = pytest.StashKey[tuple[Cell | None, "Served | Exception | None"]]()
_ALONE = pytest.StashKey[tuple[Cell | None, "list[Answer]"]]()
