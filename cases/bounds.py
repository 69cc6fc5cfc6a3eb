"""The most that any batch of a deployment can need: closed formulas, each with its proof.

What counts as a batch: 1 .. N requests, at most T query tokens in all; each request has q >= 1 query tokens, the last
ones of a sequence of s <= S tokens. Where a query starts is free: what a step leaves of a prompt depends on more than
the load (the other requests' tokens, `--long-prefill-token-threshold`, an encoder's budget, KV from elsewhere).

Assumed: q >= 1. A row of padding (q = 0) that reached the splitter would still get a virtual batch, with a whole chunk
of keys: N = T = 8, c = 16, four cut windows of 2 tokens and four such rows make 12 rows, and the formulas say 8.

c is what a pattern cuts a sequence by (`Pattern.border`): the tokens of a chunk, or S where a token sees everything.

A request that starts at `a` needs no more if it starts at `a mod c` (the same places in their chunks, a shorter
sequence), so only 0 <= a < c is looked at.
"""

from dataclasses import dataclass

from cases.cell import Load
from cases.patterns import Pattern


@dataclass(frozen=True)
class Limits:
    """N and T of a scheduler, and S, the most tokens that a sequence has in a step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    longest: int

    @classmethod
    def of(cls, load: Load) -> "Limits":
        """The limits of a load that generates: a step leaves room for the token that it samples, so S = L - 1.

        Source (0.32.0): `v1/core/sched/scheduler.py` cuts a running request's tokens to `max_model_len` less those
        computed less `num_sampled_tokens_per_step`; `v1/engine/input_processor.py` rejects a prompt of L tokens.
        """
        return cls(load.max_num_seqs, load.max_num_batched_tokens, load.max_model_len - 1)


def tokens(limits: Limits) -> int:
    """The most query tokens of a step, min(T, N S): each request has at most its whole sequence."""
    return min(limits.max_num_batched_tokens, limits.max_num_seqs * limits.longest)


def virtual_batches(limits: Limits, pattern: Pattern) -> int:
    """The most rows after the split; each row of a request has the pages of one chunk, so this is `pages` of size c.

    For S > c that is min(T, 2N) + min(floor((T - 2N)+ / c), N (ceil(S / c) - 2)), and min(T, N) else. It is below the
    bound min(2N + ceil(T / c), T) of https://github.com/vllm-project/vllm/pull/50022 wherever T > 2N and c > 1.
    """
    border = pattern.border(limits.longest)
    return _pages(limits, border, border)


def pages(limits: Limits, pattern: Pattern, page: int) -> int:
    """The most pages over all rows, for pages of p tokens where p divides c (vLLM's splitter asserts that).

    One request with q tokens from `a` < c: its rows have the pages of its first a + q tokens, which is ceil((a + q) /
    p). The best start is the last that is allowed, min(c - 1, S - q): ceil(min(c - 1 + q, S) / p) pages. So the
    first token brings ceil(min(c, S) / p) of them; if S > c the second brings one more (a new chunk), and from there
    each p tokens bring one, up to ceil(S / p) in all.

    All requests: no token brings more than a request's first, so n = min(N, T) requests; none brings a page for fewer
    tokens than a request's second, so these come next; what is left goes in runs of p tokens, whoever gets them, until
    all requests have all pages of their sequences. Within a request they come in this order anyway, so that taking the
    cheapest first is allowed, and no other choice gets more.
    """
    border = pattern.border(limits.longest)
    if border % page and limits.longest > border:
        raise ValueError(f"a chunk of {border} tokens is no whole number of pages of {page}")
    return _pages(limits, border, page)


def _pages(limits: Limits, border: int, page: int) -> int:
    requests = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    first = -(-min(border, limits.longest) // page)
    if limits.longest <= border:
        return requests * first
    left = limits.max_num_batched_tokens - requests
    second = min(requests, left)
    further = min((left - second) // page, requests * (-(-limits.longest // page) - first - 1))
    return requests * (first + 1) - (requests - second) + further


def mask_rows(limits: Limits, spec_k: int, pattern: Pattern) -> int:
    """The most decode rows in a step whose decode rows all have one length w, 2 <= w <= 1 + k.

    That is the step for which XQA's draft mask comes from a buffer; for rows of mixed lengths it is made anew, and for
    rows of one token there is none. The rows need not be verify windows: the tail of a prompt that a boundary cuts
    into rows of w is decoded like them, so even k = 1 gets two rows for one request.

    A request has only rows of w tokens if it is 1 row (w <= min(c, S)), 2 rows with the boundary in its middle (w <= c
    and c + w <= S), or rows of whole chunks (w = c, up to floor(S / c) of them). So w = 2 gives the most, except where
    whole chunks are decoded (c <= 1 + k).
    """
    n, t, longest = limits.max_num_seqs, limits.max_num_batched_tokens, limits.longest
    border = pattern.border(longest)
    if spec_k == 0:
        return 0
    most = min(t // 2, n * (2 if longest >= border + 2 else 1)) if min(border, longest) >= 2 else 0
    if 2 <= border <= 1 + spec_k:
        most = max(most, min(t // border, n * (longest // border)))
    return most
