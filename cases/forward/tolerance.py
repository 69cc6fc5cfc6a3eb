"""How far a forward's output may be from the definition's, in float64: derived, not chosen.

An output is o = sum_j w_j v_j with w_j = exp(s_j) / sum_j exp(s_j), and A = sum_j w_j |v_j|. u is the unit roundoff of
the output's dtype (Higham, Accuracy and Stability of Numerical Algorithms, 2.2): 2^-8 for bfloat16, 2^-11 for float16;
e is that of float32, 2^-24, in which kernels sum. Inputs are numbers that the cache stores exactly. What may differ:

- the result is rounded to the output's dtype when it is written: u |o| <= u A. A kernel that leaves bits off instead
  (`cpu_attn` in bfloat16 on a CPU without AVX512_BF16) is off by up to the distance of two numbers: u is 2^-7 then;
- a kernel that multiplies weights and values in the cache's dtype rounds each weight first: u A (triton_attn);
- the n products of a row are summed in float32, and so are the weights: n e A each, in any order (Higham, 3.1);
- a score is a sum of d products in float32, scaled, and goes through exp: off by at most (d + 4) e S, S being the sum
  of the |q_i k_i| times the scale; that is a relative error of each weight, above and below the line: 2 (d + 4) e S.

Where queries and keys are zero all scores are 0, all weights 1 before the division and exact in any dtype, and a value
is 0 or 1: sums are exact, and what remains is the division and the rounding, (u + 4 e) o.
"""

from dataclasses import dataclass

import numpy as np

from cases.reference import Floats

UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
FLOAT32 = UNIT_ROUNDOFF["float32"]
ROUNDS_WEIGHTS = frozenset({"cpu_attn", "triton_attn"})
"""Backends whose kernel is a real one here, and multiplies weights and values in the cache's dtype."""


@dataclass(frozen=True)
class Sums:
    """Of each output number [tokens, heads, size]: A. Of each token and head [tokens, heads]: S. Keys of each token."""

    absolute: Floats
    scores: Floats
    keys: Floats


def tolerated(sums: Sums, dtype: str, backend: str, head_size: int, exact_heads: slice, *, cut: bool) -> Floats:
    """The largest allowed error of each output number; `exact_heads` are those of zero queries and keys.

    `cut` says that the kernel leaves bits off where others round.
    """
    u = UNIT_ROUNDOFF[dtype] * (2 if cut else 1)
    rounded = u * (2 if backend in ROUNDS_WEIGHTS else 1)
    of_scores = 2 * (head_size + 4) * FLOAT32 * sums.scores
    relative = rounded + 2 * sums.keys[:, None] * FLOAT32 + of_scores
    relative[:, exact_heads] = u + 4 * FLOAT32
    return np.asarray(sums.absolute * relative[:, :, None])
