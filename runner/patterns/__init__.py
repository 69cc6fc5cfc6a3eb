"""The fewest products of axis values that hold all cells of a set and no other cell that exists. Pure.

This is the minimization of a function of many-valued variables: maximal boxes (prime implicants) are found first, then
the fewest of them that cover the set are chosen, by integer programming where the problem is small and greedily where
it is not. Combinations that do not exist belong to neither side, and a box may hold them: it is shorter to say then.

A cell is a tuple of positions, one per axis: position p stands for the p-th value of that axis.
"""

from runner.patterns.grid import Grid, Split
from runner.patterns.problem import Box, Cell

__all__ = ["Box", "Cell", "Grid", "Split"]
