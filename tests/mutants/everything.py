"""All mutants, from the files that hold them."""

from tests.mutants import mutants
from tests.mutants.kv_cache import KV_CACHE

MUTANTS = (*mutants.MUTANTS, *KV_CACHE)
