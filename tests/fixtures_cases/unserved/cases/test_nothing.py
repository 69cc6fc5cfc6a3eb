"""Cases that no cell of such an environment gets to see."""


def test_nothing() -> None:
    raise AssertionError("the environment was refused before")
