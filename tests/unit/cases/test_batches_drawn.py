"""Random batches: what a scheduler may form, in its order, the same for the same seed wherever they are drawn."""

import subprocess
import sys
from pathlib import Path

import pytest

from cases import batches
from cases.batches.drawn import drawn
from cases.cell import Load
from cases.patterns import Chunked

LOADS = [
    Load("solo", 1, 36000, 36000, 16, 8, 2, 128, "bfloat16"),
    Load("small", 4, 2048, 16384, 32, 8, 2, 128, "bfloat16"),
    Load("tiny", 3, 5, 7, 4, 8, 2, 128, "bfloat16"),
    Load("server", 8, 1024, 131072, 16, 8, 2, 128, "bfloat16"),
]
SEEDS = range(40)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
@pytest.mark.parametrize("spec_k", [0, 3])
def test_every_batch_may_be_scheduled(load: Load, spec_k: int) -> None:
    found = [batch for seed in SEEDS for batch in drawn(load, spec_k, Chunked(64), seed)]
    assert len(set(found)) > len(SEEDS)
    assert all(batches.may_be_formed(batch, load) for batch in found)
    for batch in found:  # both of vLLM's model runners put whatever is longer than a window behind all that is not
        longer = [q > 1 + spec_k for q, s in zip(batch.query_lens, batch.seq_lens, strict=True) if q < s]
        assert longer == sorted(longer)


def test_they_are_where_the_faults_are() -> None:
    """Over a few seeds: queries over a boundary, from and to one, ends of pages and of the longest sequence."""
    load, chunk = LOADS[3], 64
    found = [batch for seed in SEEDS for batch in drawn(load, 3, Chunked(chunk), seed)]
    requests = [(s - q, s) for batch in found for q, s in zip(batch.query_lens, batch.seq_lens, strict=True)]
    assert any(start // chunk < (end - 1) // chunk for start, end in requests)
    assert any(start % chunk == 0 < start for start, _ in requests)
    assert any(end % chunk == 0 for _, end in requests)
    assert any(end % chunk == 1 < end for _, end in requests)
    assert any(end % load.block_size == 0 and end % chunk for _, end in requests)
    assert any(end == load.max_model_len - 1 for _, end in requests)
    assert {len(batch.query_lens) for batch in found} >= {1, 4, 8}


def test_a_seed_gives_the_same_in_a_process_with_other_modules(tmp_path: Path) -> None:
    """hypothesis would draw numbers that it finds in the source of whatever local module is loaded."""
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = {list(range(100_000, 104_000, 7))}\n")
    code = (
        "import full_of_numbers; from cases.batches.drawn import drawn; from cases.cell import Load; "
        "from cases.patterns import Chunked; "
        f"print([drawn(Load({', '.join(repr(v) for v in vars(LOADS[3]).values())}), 3, Chunked(64), s) "
        "for s in range(40)])"
    )
    root = Path(__file__).parents[3]
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
    )  # fmt: skip
    assert elsewhere.stdout.strip() == str([drawn(LOADS[3], 3, Chunked(64), seed) for seed in SEEDS]).strip()
    assert not (tmp_path / ".hypothesis").exists()
