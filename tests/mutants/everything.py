"""All mutants, from the files that hold them."""

from tests.mutants import mutants
from tests.mutants.attention import ATTENTION
from tests.mutants.batches import BATCHES
from tests.mutants.buffers import BUFFERS
from tests.mutants.forward import COMPUTED
from tests.mutants.kv_cache import KV_CACHE
from tests.mutants.routes import ROUTES

MUTANTS = (*mutants.MUTANTS, *ATTENTION, *BATCHES, *BUFFERS, *KV_CACHE, *ROUTES, *COMPUTED)
