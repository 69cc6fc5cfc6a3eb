"""A cell, served: vLLM's `LLM` as a user makes it, on the presented arch, in this process.

What is less than the cell's load asks for, so that a CPU serves it: a step and a sequence are cut to a few chunks, and
the KV cache to what the prompts need. What it computes in is float32, where all backends agree to the last few bits and
an oracle can tell right from wrong; FlashInfer and FlashAttention have no such kernels on a GPU, so the presented
platform validates them for bfloat16. Everything else is the cell's. `resolved` records both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import Llama4ForCausalLM
from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention

from cases import arch, command_line, extents, owned
from cases.cell import Cell, Load
from cases.engine import model
from cases.engine.oracle import Answer
from cases.engine.prompts import Sizes
from cases.engine.steps import Steps
from cases.needs import Need
from cases.stand_ins import OutOfRange
from cases.verdicts import Overflow, Overflowed, Substituted, Unavailable, words_of
from cases.vllm_api import cpu_isa, registered, routes
from cases.vllm_api.deployment import read

STEP_CHUNKS, SEQUENCE_CHUNKS = 3, 4
"""Chunks that fit a step and a sequence."""
LONGEST_CHUNK = 64
"""Of a CPU's engine: attention over a sequence of four chunks of more tokens takes minutes."""
ANSWER, SHORT_ANSWER = 8, 3
"""Tokens of an answer: two verify windows of three drafts; and the least that goes beyond a border."""
KV_BLOCKS = 160
NO_DRAFTS_INTERPRETED = (
    "Triton's interpreter cannot run the n-gram search of vLLM's V2 model runner "
    "(v1/worker/gpu/spec_decode/ngram/speculator.py): ValueError('mask has unsupported dtype')"
)


@dataclass(frozen=True)
class Served:
    """An engine that answers, and the model that it should be."""

    cell: Cell
    llm: LLM
    oracle: Llama4ForCausalLM
    steps: Steps
    runner: Any
    """vLLM's model runner."""
    died: list[str] = field(default_factory=list)
    """Why the engine answers no more: what an earlier step raised."""

    @property
    def scheduler(self) -> Any:
        return self.steps.scheduler

    @property
    def sizes(self) -> Sizes:
        """What prompts are made for."""
        load = self.cell.load
        longest = load.max_model_len - ANSWER
        return Sizes(self.cell.chunk, load.block_size, self.cell.spec_k, longest, few=not compiled(self.cell))

    def answers(self, prompts: Sequence[Sequence[int]], tokens: int = 0, *, from_cache: bool = False) -> list[Answer]:
        """The engine's answers, all prompts given at once; Overflowed where a buffer was too short for a step."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=tokens or (ANSWER if compiled(self.cell) else SHORT_ANSWER),
            ignore_eos=True,
            detokenize=False,
            logprobs=2,
            skip_reading_prefix_cache=not from_cache,
        )
        try:
            outputs = self.llm.generate(
                [{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False
            )
        except Exception as error:
            self.died.append(words_of(error))
            if overflow := self._overflow(error):
                raise Overflowed([overflow]) from error
            raise
        return [_answer(output) for output in outputs]

    def answers_alone(self, prompts: Sequence[Sequence[int]], tokens: int = 0, **options: Any) -> list[Answer]:
        """The same, one prompt after the other: each is answered before the next is sent."""
        return [answer for prompt in prompts for answer in self.answers([prompt], tokens, **options)]

    def kv_caches(self) -> list[Any]:
        """The layers' tensors of the KV cache, pages along the first axis."""
        layers = self.llm.llm_engine.vllm_config.compilation_config.static_forward_context.values()
        return [layer.kv_cache for layer in layers]

    def resolved(self) -> dict[str, Any]:
        """What vLLM chose by itself, and what was cut."""
        config, group = self.llm.llm_engine.vllm_config, self.local_groups()[0]
        kernel = getattr(group.get_metadata_builder(), "flashinfer_trtllm_api_decode_kernel", None)
        return {
            "backend": group.backend.get_name().lower(),
            "decode_kernel": kernel.value if kernel else f"{self.cell.backend}-native",
            "hybrid": "off" if config.scheduler_config.disable_hybrid_kv_cache_manager else "on",
            "kv_spec": type(group.kv_cache_spec).__name__,
            "kv_dtype": str(group.kv_cache_spec.dtype).removeprefix("torch."),
            "kv_layout": routes.kv_layout(config),
            "block_size": group.kv_cache_spec.block_size,
            "kv_groups": len(self.runner.kv_cache_config.kv_cache_groups),
            "model_runner": type(self.runner).__module__.removeprefix("vllm.v1.worker."),
            "max_num_batched_tokens": self.cell.load.max_num_batched_tokens,
            "max_model_len": self.cell.load.max_model_len,
            "layers": "".join("l" if local else "g" for local in model.LAYERS),
            **(cpu_isa.chosen(group.get_metadata_builder()) if self.cell.backend == "cpu_attn" else {}),
        }

    def _overflow(self, error: Exception) -> Overflow | None:
        """The overflow that an exception in a step is about, with what was sent; None if about something else."""
        if not self.steps.batches:
            return None
        batch = self.steps.batches[-1]
        sent = f"prompts of {', '.join(map(str, self.steps.prompts))} tokens"
        if isinstance(error, OutOfRange):
            how = "short" if error.access == "read" else "silent"
            detail = f"{sent}: {error}"
            return Overflow(error.buffer, error.required, error.allocated, how, batch, detail)
        for group in self.local_groups():
            need = Need.of(batch, self.cell.pattern, group.kv_cache_spec.block_size)
            storages = owned.storages(group.get_metadata_builder())
            if found := extents.raised(error, storages, need.counts, batch):
                return replace(found, detail=f"{sent}: {found.detail}")
        return None

    def local_groups(self) -> list[Any]:
        """The attention groups of layers with chunked local attention: one backend and one spec each."""
        groups = [group for of_plan in self.runner.attn_groups for group in of_plan]
        layers = self.llm.llm_engine.vllm_config.compilation_config.static_forward_context
        return [g for g in groups if isinstance(layers[g.layer_names[0]], ChunkedLocalAttention)]


def serve(cell: Cell, folder: Path) -> Served:
    """An engine for the cell; Refused in vLLM's words, Substituted where another backend or manager serves it."""
    if not cell.on_device and cell.chunk > LONGEST_CHUNK:
        raise Unavailable(f"chunks of {cell.chunk} tokens would take a CPU's engine minutes to fill")
    if not compiled(cell) and cell.spec_k and cell.draft == "ngram":
        raise Unavailable(NO_DRAFTS_INTERPRETED)
    arch.see(cell)
    cell = replace(cell, load=cut(cell))
    oracle = model.of(cell)
    model.write(oracle, cell, folder)
    args = engine_args(cell, folder)
    try:
        config = read(lambda: EngineArgs(**args).create_engine_config())
    finally:
        registered.require(cell.backend)
    routes.check_hybrid(cell, config)
    llm = LLM(**args)
    core = llm.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    served = Served(cell, llm, oracle, Steps(core.scheduler), runner)
    if (backend := served.resolved()["backend"]) != cell.backend:
        raise Substituted(f"asked for {cell.backend}, vLLM chose {backend}")
    return served


def compiled(cell: Cell) -> bool:
    """Whether steps are quick: kernels in an interpreter take seconds for one, and only the first cases judge them."""
    return cell.evidence != "interpreted"


def cut(cell: Cell) -> Load:
    """The load as far as a CPU serves it."""
    load, c = cell.load, cell.chunk
    tokens = max(STEP_CHUNKS * c + load.block_size, load.max_num_seqs)
    longest = SEQUENCE_CHUNKS * c
    return replace(
        load,
        max_num_batched_tokens=min(load.max_num_batched_tokens, tokens),
        max_model_len=min(load.max_model_len, longest),
        dtype="float32",
    )


def engine_args(cell: Cell, folder: Path) -> dict[str, Any]:
    """What a user gives `LLM`: the cell's command line, and what keeps it small and in this process."""
    args = command_line.engine_args(cell, folder) | {
        "enforce_eager": True,
        "num_gpu_blocks_override": KV_BLOCKS,
        "kv_cache_memory_bytes": 1 << 20,  # a number, so that vLLM does not measure; the line above says how many
        "disable_log_stats": True,
    }
    if cell.draft == "eagle":  # else vLLM chooses a backend for the draft's layer by itself
        args["speculative_config"]["attention_backend"] = cell.backend.upper()
    return args


def _answer(output: Any) -> Answer:
    (said,) = output.outputs
    ranked = [sorted((entry.logprob for entry in step.values()), reverse=True) for step in said.logprobs]
    return Answer(
        tuple(output.prompt_token_ids),
        tuple(said.token_ids),
        tuple(step[token].logprob for step, token in zip(said.logprobs, said.token_ids, strict=True)),
        tuple(one[0] - one[1] for one in ranked),
        output.num_cached_tokens or 0,
    )
