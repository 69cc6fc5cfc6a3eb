"""All mutants, from the files that hold them."""

from tests.mutants import mutants
from tests.mutants.attention import ATTENTION
from tests.mutants.buffers import BUFFERS

MUTANTS = (*mutants.MUTANTS, *ATTENTION, *BUFFERS)
