"""Every fatal error of the runner, one exit code each.

    RunnerError
    ├── UsageError            2   a command line that cannot be obeyed
    │   └── MatrixError       2   matrix.yaml is wrong: all mistakes at once
    ├── MachineError          3   Docker, disk, package index, device: not the product, not the user
    │   └── EnvironmentBroken 3   an environment could not be built or does not import
    ├── StoppedEarly          4   can be resumed
    └── NothingSelected       5   the filters match no cell

A message says what happened, where, and what to do next. `main` prints it without a traceback and exits with the code.
"""

from dataclasses import dataclass
from typing import ClassVar


class RunnerError(Exception):
    """Base of all errors that end the command with a message."""

    exit_code: ClassVar[int]


class UsageError(RunnerError):
    """The command line cannot be obeyed."""

    exit_code = 2


@dataclass(frozen=True, order=True, slots=True)
class Mistake:
    """One mistake in matrix.yaml; line and column start at 1."""

    line: int
    column: int
    message: str


class MatrixError(UsageError):
    """matrix.yaml is wrong: every mistake found, in the order of the file, as `file:line:column: message`."""

    def __init__(self, path: str, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(mistakes)
        super().__init__("\n".join(f"{path}:{m.line}:{m.column}: {m.message}" for m in self.mistakes))


class MachineError(RunnerError):
    """Something of this machine is missing or broke: neither the product's fault nor the user's."""

    exit_code = 3


class EnvironmentBroken(MachineError):
    """An environment could not be built, or what was built does not import."""


class StoppedEarly(RunnerError):
    """The run ended before its last cell; what it has is kept."""

    exit_code = 4


class NothingSelected(RunnerError):
    """The filters match no cell."""

    exit_code = 5
