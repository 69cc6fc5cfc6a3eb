"""A compatibility matrix runner for vLLM's chunked local attention."""

__version__ = "0.1.0"
