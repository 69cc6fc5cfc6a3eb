"""The real engine: vLLM's `LLM` with a tiny Llama 4 whose weights make attention decide, beside transformers' own."""
