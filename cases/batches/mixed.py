"""Steps of requests in all phases, and prefills over many chunks."""

from cases.batches.formed import Named, Requests, border_of, formed, in_order
from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Pattern
from cases.verdicts import Batch


def long_prefills(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Prefills over many chunks, alone and behind as many requests as fit.

    A request of q >= 2 tokens that starts at the last token of a chunk touches 2 + floor((q - 2) / c) chunks, the most
    any start gives.
    """
    tokens, longest, border = load.max_num_batched_tokens, Limits.of(load).longest, border_of(load, pattern)
    alone = min(tokens, longest)
    named = [Named("one prefill from the start", Batch((alone,), (alone,)))]
    late = min(tokens, longest - (border - 1))
    if late >= 2:
        named.append(Named("one prefill from the last token of a chunk", Batch((late,), (border - 1 + late,))))
        for name, size in (("decodes", 1), ("split verify windows", 1 + spec_k)):
            others = min(load.max_num_seqs - 1, (tokens - 2) // size)
            rest = min(tokens - others * size, longest - (border - 1))
            if others > 0 and (size > 1 or name == "decodes"):
                head = Batch((size,) * others + (rest,), (border + (size + 1) // 2,) * others + (border - 1 + rest,))
                named.append(Named(f"{name} and a prefill", head))
    return formed(named, load)


def all_phases(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """A decode, verify windows of two lengths, a short and a long extend and a new prompt, as many as fit, in order.

    A prompt's last tokens (short extend) are told from a decode by nothing that the splitter sees. The long extend
    comes with a context of whole chunks.
    """
    border = border_of(load, pattern)
    starts = [
        (1 + spec_k, border - 1),  # a window cut after its first token
        (1, border),  # a decode of a chunk's first token
        (border // 2 + 2, 3 * border - 2),  # a long extend
        (border + 1, 0),  # a new prompt
        (min(2, 1 + spec_k), 2 * border - 1),  # fewer drafts than k, or none; or the end of a prompt
    ]
    return formed([Named("requests in all phases", in_order(_fitting(starts, load), spec_k))], load)


def ends(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Queries over a chunk boundary that end exactly on a page, on a chunk, and with the longest sequence.

    Near the end of the longest sequence the pages of its last chunk would run off the block table, if the length is no
    multiple of the chunk (https://github.com/vllm-project/vllm/issues/16157). The last one ends there with drafts: no
    step may count tokens behind it (https://github.com/sgl-project/sglang/pull/35985).
    """
    longest, page, border = Limits.of(load).longest, load.block_size, border_of(load, pattern)
    places = [
        ("a page", border + page, page + 1),
        ("a chunk", 2 * border, border + 1),
        ("the longest sequence", longest, border + 1),
        ("the longest sequence, with drafts", longest, 1 + spec_k),
    ]
    starts = [(min(q, s), max(s - q, 0)) for _, s, q in places if s >= 1]
    together = _fitting(starts, load)
    if len(together) == len(starts):
        return formed([Named("ends on a page, a chunk and the longest sequence", in_order(together, spec_k))], load)
    sizes = [min(q, s, load.max_num_batched_tokens) for _, s, q in places]
    alone = [Named(f"ends with {places[i][0]}", Batch((q,), (places[i][1],))) for i, q in enumerate(sizes)]
    return formed(alone, load)


def _fitting(starts: Requests, load: Load) -> Requests:
    """The first of these (tokens, start) that fit into one step and one sequence, the last of them cut down."""
    requests: Requests = []
    left, longest = load.max_num_batched_tokens, Limits.of(load).longest
    for tokens, start in starts:
        size = min(tokens, left, longest - start)
        if size > 0 and len(requests) < load.max_num_seqs:
            requests.append((size, start + size))
            left -= size
    return requests
