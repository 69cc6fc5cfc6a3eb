"""A case that takes a moment and fails for every seventh cell, by its id: what a disturbed run must still say."""

import time
import zlib

import pytest


@pytest.fixture
def cell(request):
    return request.config.attnmatrix_cell


def test_quick(cell):
    time.sleep(0.01)
    print("this cell is", cell["id"])
    assert zlib.crc32(cell["id"].encode()) % 7, "a seventh of the cells fails"
