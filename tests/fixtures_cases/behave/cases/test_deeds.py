"""One case that does what its cell says, and a few with a fixed outcome."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the real cases are a package; these only need each other
import attacks
import deeds


def test_deed(request, cell):
    do = cell["axes"].get("do") or cell["axes"]["load"]  # a matrix can name its loads, and not its axes
    deed = getattr(deeds if hasattr(deeds, do) else attacks, do)
    deed(request) if deed.__code__.co_argcount else deed()


def test_second(request, cell):
    """Applies only to cells that ask for it; tells an overflow."""
    request.node.attnmatrix = {
        "state": "overflow",
        "message": "indptr needs 6, has 2",
        "overflow": [
            {
                "buffer": "indptr",
                "required": 6,
                "allocated": 2,
                "how": "raised",
                "batch": {"query_lens": [320], "seq_lens": [320]},
            }
        ],
        "resolved": {"backend": "fake", "block_size": 16},
    }
    pytest.fail("raised")
