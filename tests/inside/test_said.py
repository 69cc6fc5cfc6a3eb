"""What is kept out of the logs of cells: what was said before the first one, and nothing else."""

import logging

from cases.vllm_api.said import SaidBefore


def test_what_was_said_before_is_not_said_again_and_the_rest_as_often_as_it_is_said():
    said = SaidBefore()

    def lets(words: str, *args: object) -> bool:
        return said.filter(logging.LogRecord("vllm", logging.ERROR, "", 0, words, args, None))

    assert lets("no version %d", 2)
    said.listening = False
    assert not lets("no version %d", 2)
    assert lets("no version %d", 3)
    assert lets("a cell's own")
    assert lets("a cell's own")
