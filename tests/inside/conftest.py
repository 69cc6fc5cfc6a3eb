"""Tests of what needs torch and vLLM: they run inside an environment, where tests/e2e/test_inside.py starts them."""

from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []
