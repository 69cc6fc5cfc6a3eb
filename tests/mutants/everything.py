"""All mutants, from the files that hold them."""

from tests.mutants import mutants
from tests.mutants.attention import ATTENTION
from tests.mutants.buffers import BUFFERS
from tests.mutants.kv_cache import KV_CACHE

MUTANTS = (*mutants.MUTANTS, *ATTENTION, *BUFFERS, *KV_CACHE)
