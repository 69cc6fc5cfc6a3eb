"""docs/states.md and the table of states in README.md: `python -m runner.reports.states` writes both anew."""

from collections.abc import Iterator
from pathlib import Path

from runner.model import Fault, Verdict
from runner.outcome import VERDICT_ORDER, exit_code
from runner.reports.heatmap import GLYPHS
from runner.states import MEANINGS, Shown

PAGE = "docs/states.md"
BEGIN, END = "<!-- states -->", "<!-- /states -->"
"""What stands around the table in README.md."""

_HEAD = """# States

`python -m runner.reports.states` makes this page, and the table in README.md, of `runner/states.py`. Tests compare both
with it, and look for each test that is named here.

A case ends in a state. A cell's state is the worst of its cases, or what befell the cell itself. What `matrix.yaml`
expects makes a verdict of it: the state itself, or `refused!`, `xfail`, `xpass` or `flaky`. A run exits with the code
of its worst verdict. Product trouble wins over all else, and trouble of the harness or the machine over what was not
run.

"""


def table() -> str:
    """All verdicts, worst first, and what is expected last."""
    lines = ["| verdict | | meaning | whose trouble | exit |", "| --- | --- | --- | --- | --- |"]
    for verdict in VERDICT_ORDER:
        name, short, code = verdict.value, MEANINGS[verdict].short, exit_code([verdict])
        lines.append(f"| `{name}` | `{GLYPHS[verdict]}` | {short} | {_whose(verdict)} | {code} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole of docs/states.md."""
    return _HEAD + table() + "".join(f"\n{section(verdict)}" for verdict in VERDICT_ORDER)


def section(verdict: Verdict) -> str:
    """One verdict: whose trouble it is, what can be in it, what cannot, and what to do."""
    meaning = MEANINGS[verdict]
    parts = [
        f"## `{verdict.value}`\n\n",
        f"Meaning: {meaning.short}. Trouble: {_whose(verdict) or 'none'}. Exit code: {exit_code([verdict])}.\n",
        "".join(["\nCan be in it:\n\n", *map(_line, meaning.holds)]),
        "".join(["\nCannot be in it:\n\n", *map(_line, meaning.never)]),
    ]
    return "".join(parts) + (f"\n{meaning.next}\n" if meaning.next else "")


def _whose(verdict: Verdict) -> str:
    return "" if verdict.fault is Fault.NONE else verdict.fault.value


def _line(shown: Shown) -> str:
    sentence, test = shown
    return f"- {sentence} (`{test.rpartition('::')[2]}`)\n"


def tests() -> Iterator[str]:
    """Every test that the page names, as pytest takes it from the project's folder."""
    for meaning in MEANINGS.values():
        yield from (f"tests/{test}" for _, test in (*meaning.holds, *meaning.never))


def with_table(readme: str) -> str:
    """The text of README.md with the table as it is now."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.partition(END)[2]}"


def write(project: Path) -> None:
    """Both files anew."""
    (project / PAGE).write_text(page())
    readme = project / "README.md"
    readme.write_text(with_table(readme.read_text()))


if __name__ == "__main__":
    write(Path.cwd())
