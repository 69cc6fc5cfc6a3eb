"""Who holds a lock is said whole, by one who waits for the words where they are not there yet."""

import os
import threading
import time
from pathlib import Path

from runner import holder


def test_the_holder_is_named(tmp_path: Path) -> None:
    holder.sign(tmp_path / "a.holder", " (since 08:00:00)")
    assert holder.who(tmp_path / "a.holder") == f"process {os.getpid()} (since 08:00:00)"
    assert [path.name for path in tmp_path.iterdir()] == ["a.holder"]


def test_words_that_come_a_moment_later_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.holder"
    path.touch()  # as a reader met it while it was written
    later = threading.Timer(0.2, holder.sign, [path])
    later.start()
    assert holder.who(path, patience_s=20) == f"process {os.getpid()}"
    later.join()


def test_without_words_it_is_another_process(tmp_path: Path) -> None:
    began = time.monotonic()
    assert holder.who(tmp_path / "none", patience_s=0) == "another process"
    assert time.monotonic() - began < 5
