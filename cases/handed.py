"""What vLLM hands over, checked where it enters the cases: what breaks its contract is vLLM's fault, and told as that.

Without it our own code would trip over the value later, and the case would say that it is us who know no better.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from cases.verdicts import HandedOver

PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set)
INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Contract:
    """What a value must be, in words, and whether one is."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: "Contract") -> "Contract":
        return Contract(f"{self.words}, or {other.words}", lambda value: self.holds(value) or other.holds(value))


def _is_count(value: Any) -> bool:
    """An integer of Python, numpy or torch, and no boolean."""
    if isinstance(value, bool):
        return False
    try:
        return operator.index(value) >= 0
    except (TypeError, RuntimeError):
        return False


def _is_tensor(value: Any, dims: int, dtypes: Iterable[torch.dtype]) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == dims and value.dtype in dtypes


NOTHING = Contract("None", lambda value: value is None)
COUNT = Contract("a count", _is_count)
TEXT = Contract("a name", lambda value: isinstance(value, str) and bool(value))
OBJECT = Contract("an object of vLLM", lambda value: not isinstance(value, PLAIN))
INDICES = Contract("a tensor of integers with one dimension", lambda value: _is_tensor(value, 1, INTEGERS))
TABLE = Contract("a table of integers", lambda value: _is_tensor(value, 2, INTEGERS))
MASK = Contract(
    "a tensor of 16-bit words with two or three dimensions",
    lambda value: _is_tensor(value, 2, (torch.uint16,)) or _is_tensor(value, 3, (torch.uint16,)),
)


def list_of(contract: Contract) -> Contract:
    """At least one of something, in a list or a tuple."""
    return Contract(
        f"a list of {contract.words} each",
        lambda value: isinstance(value, list | tuple) and bool(value) and all(map(contract.holds, value)),
    )


def tables_of(groups: int) -> Contract:
    """A request's block tables: a list of block ids for each group of layers."""
    ids = Contract("ids", lambda value: isinstance(value, list | tuple) and all(map(_is_count, value)))
    return Contract(
        f"a list of block ids for each of {groups} groups",
        lambda value: isinstance(value, list | tuple) and len(value) == groups and all(map(ids.holds, value)),
    )


def having(**attributes: Contract) -> Contract:
    """An object whose attributes hold. One that it lacks is another API, and not vLLM's fault: it is left to fail."""
    words = ", ".join(f"{name} ({contract.words})" for name, contract in attributes.items())
    return Contract(
        f"an object of vLLM with {words}",
        lambda value: (
            OBJECT.holds(value)
            and all(
                contract.holds(getattr(value, name)) for name, contract in attributes.items() if hasattr(value, name)
            )
        ),
    )


NAMED = having(name=TEXT)
SPEC = having(block_size=COUNT, head_size=COUNT, num_kv_heads=COUNT)
GROUP = having(layer_names=list_of(TEXT), kv_cache_spec=OBJECT)
STEP = having(query_start_loc=INDICES, seq_lens=INDICES, block_table_tensor=TABLE)

FIELDS = {
    **dict.fromkeys(("num_actual_tokens", "max_query_len", "max_seq_len", "max_q_len", "q_len_per_req"), COUNT),
    **dict.fromkeys(("num_decodes", "num_prefills", "num_decode_tokens", "num_prefill_tokens"), COUNT),
    **dict.fromkeys(("slot_mapping", "query_start_loc", "seq_lens", "decode_offset", "doc_ids"), INDICES),
    **dict.fromkeys(("cum_seq_lens_q", "cum_seq_lens_kv"), INDICES),
    **dict.fromkeys(("block_table", "block_tables", "physical_to_logical"), TABLE),
    "q_cu_seq_lens": INDICES | NOTHING,
    "mask": MASK | NOTHING,
    "wrapper": OBJECT,
}
"""What the cases read of a builder's metadata and of its parts, by name."""
PARTS = {"decode": "num_decodes", "prefill": "num_prefills"}
"""The parts of FlashInfer's metadata, and the count of rows for which there must be one."""


def handed(what: str, value: Any, contract: Contract, by: Any = None) -> Any:
    """The value, if it keeps its contract; HandedOver if not. `by` is the function of vLLM that made it."""
    if not contract.holds(value):
        raise HandedOver(what, contract.words, _shown(value), by)
    return value


def groups_of(groups: Any, layers: Iterable[str]) -> None:
    """HandedOver unless the planner's groups have each layer once."""
    handed("KV-cache groups", groups, list_of(GROUP))
    found = sorted(name for group in groups for name in group.layer_names)
    each = Contract("each layer of the model in one group", lambda names: names == sorted(layers))
    handed("KV-cache groups", found, each)


def metadata(value: Any, by: Any) -> Any:
    """A builder's metadata, all of whose known fields keep their contracts."""
    handed("metadata", value, OBJECT, by)
    _fields("metadata", value, by)
    for part, rows in PARTS.items():
        if not hasattr(value, part) or not hasattr(value, rows):
            continue
        found = getattr(value, part)
        if found is not None or getattr(value, rows):
            handed(f"metadata.{part} of {getattr(value, rows)} rows", found, OBJECT, by)
            _fields(f"metadata.{part}", found, by)
    return value


def _fields(what: str, value: Any, by: Any) -> None:
    for name, contract in FIELDS.items():
        if hasattr(value, name):
            handed(f"{what}.{name}", getattr(value, name), contract, by)


def _shown(value: Any) -> str:
    """A value in a few words: of a tensor its shape and type, of an object its class."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, PLAIN):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:80]}…"
    return type(value).__name__
