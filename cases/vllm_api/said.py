"""What vLLM's log says of every process alike stays out of the logs of cells."""

import logging

from vllm.v1.attention.backends import flash_attn

import attnmatrix_vllm


class SaidBefore(logging.Filter):
    """Drops what was said while the filter was `listening`, which it is at first."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = True
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        words = record.getMessage()
        if self.listening:
            self.said.add(words)
        return self.listening or words not in self.said


def once_for_all() -> None:
    """Let FlashAttention's backend say now that its compiled code is not here; it would at each build of each cell.

    It looks for a version that serves the arch, and for none of them on a CPU that presents no arch.
    """
    ask = getattr(flash_attn, "get_flash_attn_version", None)
    if ask is None:
        return
    before = SaidBefore()
    for handler in logging.getLogger("vllm").handlers:
        handler.addFilter(before)
    try:
        attnmatrix_vllm.present("sm80")
        ask()
    finally:
        attnmatrix_vllm.present(attnmatrix_vllm.CPU)
        before.listening = False
