"""What a backend's forward computes from the metadata of its own builder, on a paged cache that vLLM lays out.

The chunked layer, its `impl`, the write to the cache and the forward are vLLM's own. Compiled kernels that a CPU lacks
are the plugin's models of them (evidence `emulated`); Triton's run in its interpreter (`interpreted`), those of
`cpu_attn` are real (`cpu`).
"""
