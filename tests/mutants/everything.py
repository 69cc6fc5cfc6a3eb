"""All mutants, from the files that hold them."""

from tests.mutants import mutants
from tests.mutants.attention import ATTENTION

MUTANTS = (*mutants.MUTANTS, *ATTENTION)
