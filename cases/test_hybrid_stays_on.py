"""What must not turn the hybrid KV-cache manager off by the way."""

import pytest

from cases import vllm_api
from cases.vllm_api import variants


@pytest.mark.cell(
    backend=["flash_attn"], arch=["sm90"], hybrid=["on"], spec_k=[0], chunk=lambda chunk: chunk <= 64
)  # a configuration asks for none of these
@pytest.mark.kind("hybrid manager stays on")
def test_hybrid_manager_stays_on(deployment: vllm_api.Deployment) -> None:
    """Without it every layer keeps all keys, and what fitted does not (https://github.com/vllm-project/vllm/pull/41847).

    An events configuration that is off turned it off too (https://github.com/vllm-project/vllm/pull/38237).
    """
    lost = [feature for feature in variants.FEATURES if not variants.keeps_hybrid(deployment.cell, feature)]
    assert not lost, f"turned off by {' and by '.join(lost)}"
