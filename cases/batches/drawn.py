"""Random batches a scheduler may form, near the ends of chunks, pages and the longest sequence more often than not."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from cases.batches.formed import Requests, border_of, of
from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Chunked, Pattern
from cases.verdicts import Batch


class SameInEveryProcess(providers.HypothesisProvider):
    """hypothesis's own way to draw, but for the constants that it reads out of all code that happens to be loaded.

    With them, what a seed gives would depend on the process, and each process would read its modules' sources first.
    """

    _local_constants = Constants()


providers.AVAILABLE_PROVIDERS["attnmatrix"] = f"{__name__}.{SameInEveryProcess.__name__}"
SETTINGS = hypothesis.settings(
    backend="attnmatrix",
    max_examples=5,
    phases=[hypothesis.Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
_NEAR, _MULTIPLES = 7, 1 << 16
_PLACE = st.integers(0, 4 * _NEAR * _MULTIPLES - 1)
"""Which end to be near, how far from it, and which multiple of it: one number, as drawing costs more than building."""


def drawn(load: Load, spec_k: int, pattern: Pattern, seed: int, *, by_v1_only: int = 0) -> list[Batch]:
    """The batches of a seed, the same in every process. Not shrunk: what a case finds, it cuts down itself."""
    found: list[Batch] = []

    @hypothesis.seed(seed)
    @SETTINGS
    @hypothesis.given(steps(load, spec_k, pattern, by_v1_only))
    def keep(batch: Batch) -> None:
        found.append(batch)

    keep()
    return list(dict.fromkeys(found))


def warm() -> None:
    """Let hypothesis do what it does once per process: it looks for numpy's random state among all objects, 0.5 s."""
    drawn(Load("warm", 1, 1, 2, 1, 1, 1, 1, ""), 0, Chunked(1), 0)


def steps(load: Load, spec_k: int, pattern: Pattern, by_v1_only: int = 0) -> st.SearchStrategy[Batch]:
    """Steps of 1 .. max_num_seqs requests, in the order of one of vLLM's model runners.

    `by_v1_only`: in a release that has only the V1 one, the most tokens of a request that it takes for a decode.

    Of a request, the end of its sequence is drawn, and its tokens in this step: one, a verify window, or up to another
    place; as many as are left for it.
    """
    limits, ends = Limits.of(load), (border_of(load, pattern), load.block_size)

    def place(drawn: int, most: int) -> int:
        which, by, multiple = drawn % 4, drawn // 4 % _NEAR - _NEAR // 2, drawn // (4 * _NEAR)
        if which == len(ends):
            return most + min(by, 0)
        if which > len(ends):
            return 1 + multiple % most
        return ends[which] * (multiple % (most // ends[which] + 1)) + by

    def step(requests: list[tuple[int, int, int]], sorts_by_length: bool) -> Batch:
        left, formed = limits.max_num_batched_tokens, []
        for end, size, until in sorted(requests, key=lambda request: request[1]):  # few tokens first: room for more
            if left:
                length = min(max(place(end, limits.longest), 1), limits.longest)
                tokens = (1, 1 + spec_k)[size] if size < 2 else max(place(until, length), 1)
                formed.append((min(tokens, length, left), length))
                left -= formed[-1][0]
        if by_v1_only:
            return of(sorted(formed, key=lambda request: request[0] > by_v1_only))
        return _in_an_order(formed, spec_k, sorts_by_length=sorts_by_length)

    request, most = st.tuples(_PLACE, st.integers(0, 3), _PLACE), limits.max_num_seqs
    return st.builds(
        step, st.lists(request, min_size=1 + most // 4, max_size=most), st.just(False) if by_v1_only else st.booleans()
    )


def _in_an_order(requests: Requests, spec_k: int, *, sorts_by_length: bool) -> Batch:
    """Decodes and short extends, then long extends, then new prompts; or (the V2 runner) full windows, then by length.

    Source (0.32.0): `reorder_batch_to_split_decodes_and_prefills`, and `sort_batch_req_ids` of the V2 model runner.
    """

    def region(request: tuple[int, int]) -> tuple[int, int]:
        tokens, length = request
        if sorts_by_length:
            return int(tokens != 1 + spec_k), tokens
        return 2 if tokens == length else int(tokens > 1 + spec_k), 0

    return of(sorted(requests, key=region))
