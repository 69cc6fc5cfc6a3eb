"""Which kernels FlashInfer's backend uses, by release and arch: what vLLM chose, and what a kernel takes.

The facts about releases are read from each one's `v1/attention/backends/flashinfer.py` and `utils/flashinfer.py`.
"""

from typing import Any

from cases.handed import TEXT, handed, having
from cases.needs import bounds_of
from cases.verdicts import Batch, HandedOver
from cases.vllm_api import cpu_isa, routes
from cases.vllm_api.deployment import ERA, VERSION, Deployment, build, step


def decode_kernel(deployment: Deployment) -> str | None:
    """The decode kernel that FlashInfer's builder settled on, `xqa` or `trtllm-gen`; None for a backend's own.

    Until 0.10.2 it settles at each build, for windows of one token only: None, too.
    """
    builder = deployment.group.get_metadata_builder()
    kernel = getattr(builder, "flashinfer_trtllm_api_decode_kernel", None)  # since 0.25
    if kernel is not None:
        return str(handed("the decode kernel", kernel, having(value=TEXT)).value)
    return "trtllm-gen" if VERSION < (0, 25, 0) and getattr(builder, "use_trtllm_decode_attention", False) else None


def decode_window(deployment: Deployment) -> tuple[int, bool]:
    """The most query tokens of a row that FlashInfer's decode kernel takes, and whether all rows must have as many.

    XQA takes more than one token where there is a draft mask, rows of any length; trtllm-gen rows of one length. The
    native kernel takes one token, and since 0.33 below sm90 rows of one length.
    """
    kernel, drafts = decode_kernel(deployment), 1 + deployment.cell.spec_k
    if kernel == "xqa":
        return (drafts if has_draft_mask(deployment.cell.arch) else 1), False
    several = kernel == "trtllm-gen" or (VERSION >= (0, 33, 0) and deployment.cell.arch in ("sm80", "sm86", "sm89"))
    return (drafts, True) if several else (1, False)


def has_draft_mask(arch: str) -> bool:
    """Whether XQA decodes verify windows on an arch, with a mask: on sm12x since 0.28, on sm90 since 0.30."""
    return (arch in ("sm120", "sm121") and VERSION >= (0, 28, 0)) or (arch == "sm90" and VERSION >= (0, 30, 0))


def prefills_by_trtllm_gen(arch: str) -> bool:
    """Whether trtllm-gen prefills on an arch: on sm100 since 0.10.1, on sm103 since 0.13."""
    return (arch == "sm100" and VERSION >= (0, 10, 1)) or (arch == "sm103" and VERSION >= (0, 13, 0))


def resolved(deployment: Deployment) -> dict[str, Any]:
    """What vLLM chose by itself, and what its buffers must hold at worst."""
    builder = deployment.group.get_metadata_builder()
    native = f"{deployment.cell.backend}-native"
    decode = _part(deployment, "decode", 1 + deployment.cell.spec_k)
    # until 0.10.2 each build decides, and decodes one token only
    by_trtllm = type(_part(deployment, "decode", 1) if decode is None else decode).__name__ == "TRTLLMDecode"
    cpu = cpu_isa.chosen(builder) if deployment.cell.backend == "cpu_attn" else {}
    return {
        "backend": deployment.group.backend.get_name().removesuffix("_VLLM_V1").lower(),
        "prefill_kernel": _PREFILL.get(type(_part(deployment, "prefill")).__name__, native),
        "decode_kernel": decode_kernel(deployment) or ("trtllm-gen" if by_trtllm else native),
        "draft_mask": getattr(decode, "mask", None) is not None,
        "hybrid": "off" if deployment.config.scheduler_config.disable_hybrid_kv_cache_manager else "on",
        "kv_spec": type(deployment.spec).__name__,
        "kv_dtype": routes.kv_dtype(deployment.spec),
        "kv_layout": routes.kv_layout(deployment.config),
        "block_size": getattr(deployment.group, "kv_cache_spec", deployment.spec).block_size,
        "kernel_block_size": deployment.spec.block_size,
        "cudagraph": deployment.cudagraph,
        "cudagraph_support": ERA.cudagraph_support(builder, deployment.config, deployment.spec),
        "bounds": bounds_of(deployment.cell),
        **cpu,
    }


def _part(deployment: Deployment, part: str, tokens: int = 0) -> Any:
    """FlashInfer's builder decides at each build: what it makes of one request of so many tokens, or as fit a chunk.

    The error where it makes nothing: the cases about the builder judge that, this is only for the record.
    """
    if deployment.cell.backend != "flashinfer":
        return None
    load = deployment.cell.load
    tokens = tokens or min(deployment.cell.chunk, load.max_num_batched_tokens, load.max_model_len)
    try:
        metadata = build(deployment, deployment.new_builder(), step(deployment, Batch((tokens,), (tokens,))))
    except HandedOver:
        raise
    except Exception as error:  # noqa: BLE001
        return Unbuilt(error)
    return getattr(metadata, part)


class Unbuilt(Exception):
    """A batch from which the builder made nothing, so that it shows no kernel."""


_PREFILL = {"TRTLLMPrefill": "trtllm-gen", "Unbuilt": ""}
