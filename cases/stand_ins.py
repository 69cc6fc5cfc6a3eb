"""What stands for compiled code in cells about metadata, where no attention is computed.

The models of kernels are the plugin's (`plugin/attnmatrix_vllm`): each checks the contract of the function it stands
for, and raises where the real one would read or write out of range. They are installed for emulated evidence only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask

from attnmatrix_vllm import cache_kernels
from attnmatrix_vllm import install as models
from attnmatrix_vllm.contracts import ContractBroken, OutOfRange
from cases.real_kernel import interpreted

__all__ = ["COPY", "BlockMask", "ContractBroken", "CopyPageIndices", "OutOfRange", "install"]


class CopyPageIndices(cache_kernels.CopyPageIndices):
    """The model of vLLM's Triton kernel that copies pages, which lets the kernel itself do it when asked to.

    In a block `with copy.by_the_real_kernel():` it does, in Triton's interpreter, where the rows are few.
    """

    ROWS = 4
    """The interpreter takes about a millisecond for a row."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._interpret = False

    def warm(self) -> None:
        """Let the interpreter read the kernel's source: once per process, a tenth of a second."""
        if self.kernel is not None and self.interprets(1):
            page = torch.zeros((1, 1), dtype=torch.int32)
            interpreted(self.kernel)[(1,)](page[0], page, 1, torch.arange(2, dtype=torch.int32), BLOCK_SIZE=1)

    def interprets(self, rows: int) -> bool:
        """Whether the real kernel is run for that many rows when it is asked for."""
        return rows <= self.ROWS and interpreted(self.kernel) is not None

    @contextmanager
    def by_the_real_kernel(self) -> Iterator[None]:
        """Let the real kernel write until the block ends, beyond the page indices too: behind them are guard words."""
        self._interpret = True
        try:
            yield
        finally:
            self._interpret = False

    def copied_otherwise(self, grid: tuple[int], end: int, *arguments: Any, **options: Any) -> bool:
        """By the real kernel, if the block is open and the memory behind the page indices is long enough."""
        if not (self._interpret and self.interprets(*grid)):
            return False
        page_indices = arguments[0]
        behind = page_indices.untyped_storage().nbytes() // page_indices.element_size()
        if page_indices.storage_offset() + end > behind:
            raise OutOfRange("paged_kv_indices", end, page_indices.numel())
        interpreted(self.kernel)[grid](*arguments, **options)
        return True


COPY = CopyPageIndices(None)
"""The one that is installed."""


class BlockMask:
    """Stands for the compiled `create_block_mask` of FlexAttention: the same mask by the plain one, when it is read.

    Until 0.10 vLLM has one compiled for each step; plain, it takes the memory of all query tokens by all slots.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._made_of = args, options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        args, options = self._made_of
        self.__dict__.update(vars(create_block_mask(*args, **options)))
        return self.__dict__[name]


def install(flashinfer_backend: Any, flex_backend: Any, *, torch_2_8: bool) -> None:
    """Put the stand-ins where vLLM's backends look their compiled code up: the names in their own modules.

    `torch_2_8`: the release came with a torch no newer than that, by which FlexAttention chooses how to make its masks.
    """
    if torch_2_8:
        flex_backend.create_block_mask_compiled = BlockMask
        flex_backend.is_torch_equal_or_newer = lambda version: version == "2.8.0"
    models.wrappers(flashinfer_backend)
    kernel = getattr(flashinfer_backend, "_copy_page_indices_kernel", COPY)  # since 0.10.2; before, torch copies
    if kernel is not COPY:
        if not isinstance(kernel, cache_kernels.CopyPageIndices):  # the plugin's, where numbers are judged
            COPY.kernel = kernel
        flashinfer_backend._copy_page_indices_kernel = COPY
    if hasattr(flashinfer_backend, "_get_multi_ctas_kv_counter_buffer"):  # since 0.33: a layer's scratch on the device
        flashinfer_backend.get_device_sm_count = lambda _device: 1
        flashinfer_backend._get_multi_ctas_kv_counter_buffer = lambda *_: None
