"""One engine per cell, started by the first case that asks for it."""

from typing import Any

import pytest

from cases import lacking
from cases.arch import CASE
from cases.cell import Cell

if CASE == "engine":
    from cases.engine import warm
    from cases.engine.oracle import Answer
    from cases.engine.prompts import at_borders
    from cases.engine.serving import Served, serve

    warm.warm()


DEATHS = 2
"""An engine that an overflow killed is started once more: two overflows of a cell are told, other cases are skipped."""


@pytest.fixture
def engine(request: pytest.FixtureRequest, cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> "Served":
    """The cell's engine, and another one where it has died; what vLLM refuses or substitutes, each case says."""
    of, served, deaths = request.config.stash.get(_ENGINE, (None, None, 0))
    if of != cell:
        deaths, served = 0, None
    died = served.died if isinstance(served, Served) else []
    if died and deaths + 1 == DEATHS:
        pytest.skip(f"the engine died in earlier cases of this cell: {died[0]}")
    if served is None or died:
        if died:
            served.llm.llm_engine.engine_core.shutdown()  # or it would take the new one's groups with it when it goes
        try:
            with lacking.as_infra(cell.vllm):
                served = serve(cell, tmp_path_factory.mktemp("model"))
        except Exception as error:  # noqa: BLE001 - raised below, in each case that asks for the engine
            served = error
        request.config.stash[_ENGINE] = (cell, served, deaths + bool(died))
    if isinstance(served, Exception):
        raise served
    request.node.user_properties.append(("resolved", served.resolved()))
    return served


@pytest.fixture
def alone(request: pytest.FixtureRequest, engine: "Served") -> "list[Answer]":
    """The engine's answers to the prompts at borders, one after the other; found once per cell."""
    kept = request.config.stash.get(_ALONE, (None, []))
    if kept[0] is not engine.cell:
        kept = (engine.cell, engine.answers_alone(at_borders(engine.sizes)))
        request.config.stash[_ALONE] = kept
    return kept[1]


@pytest.fixture
def record(request: pytest.FixtureRequest, engine: "Served") -> dict[str, Any]:
    """For what a case measures: it goes to what the result says was resolved."""
    measured = engine.resolved()
    request.node.user_properties.append(("resolved", measured))
    return measured


_ENGINE = pytest.StashKey[tuple[Cell | None, "Served | Exception | None", int]]()
_ALONE = pytest.StashKey[tuple[Cell | None, "list[Answer]"]]()
