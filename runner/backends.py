"""Attention backends that a matrix asks for and a vLLM has not: a mistake of the matrix, found before cells run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runner import yaml_source
from runner.errors import MatrixError, Mistake
from runner.model import Order
from runner.nearest import did_you_mean

AXIS = "backend"


def require(orders: Sequence[Order], backends: Mapping[str, Iterable[str]], matrix: Path) -> None:
    """MatrixError where cells ask for a backend that their vLLM has not.

    `backends` are those that each environment has, as far as it is known.
    """
    lacking: dict[str, list[str]] = {}
    for order in orders:
        if known := set(backends.get(order.environment, ())):
            for cell in order.cells:
                name = str(cell.axes[AXIS])
                if name not in known and order.environment not in lacking.setdefault(name, []):
                    lacking[name].append(order.environment)
    if not any(lacking.values()):
        return
    source = yaml_source.parse(matrix.read_text(), str(matrix))
    written = source.items("axes", AXIS)
    mistakes = []
    for name, environments in lacking.items():
        if not environments:
            continue
        near = did_you_mean(name, backends[environments[0]])
        place = source.places.get(("axes", AXIS, written.index(name)) if name in written else ("axes", AXIS), (1, 1))
        message = (
            f"axis {AXIS!r}: vllm {', '.join(environments)} has no attention backend {name!r}{near}: correct the name, "
            f"or exclude {{{AXIS}: {name}, vllm: [...]}} by a rule"
        )
        mistakes.append(Mistake(*place, message))
    raise MatrixError(str(matrix), mistakes)
