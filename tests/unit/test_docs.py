"""What README and docs say one can type is taken by the command line, and their YAML by the matrix."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from runner import cli, matrix
from runner.outcome import EXIT_MEANING

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def commands() -> list[tuple[str, str]]:
    """Every `runner ...` in a code span or a console block, with the page it is on."""
    found = []
    for page in PAGES:
        text = page.read_text()
        spans = re.findall(r"(?<!`)`(runner(?: [^`]+)?)`(?!`)", text)
        lines = re.findall(r"^\$? ?(runner [^#|>;`\n]+)", text, re.MULTILINE)
        found += [(page.name, command.replace("\\|", "|").strip()) for command in spans + lines]
    return sorted(set(found))


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_in_the_docs_is_taken(page: str, command: str) -> None:
    """Parsed as the shell and the command line would, and not run; `a|b` stands for one of them."""
    words = [word.split("|")[0] for word in shlex.split(command)[1:] if word != "..."]
    app = typer.main.get_command(cli.app)
    context = app.make_context("runner", words, resilient_parsing=False)
    while rest := [*context._protected_args, *context.args]:
        name, subcommand, rest = context.command.resolve_command(context, rest)  # type: ignore[attr-defined]
        assert subcommand is not None, f"{page}: no command {name}"
        context = subcommand.make_context(name, rest, parent=context)


def test_the_docs_show_commands() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_yaml_in_the_docs_is_taken_by_the_matrix(page: Path, tmp_path: Path) -> None:
    text = (PROJECT / "matrix.yaml").read_text()
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        section = block.split(":")[0]
        if section in {"about", "waivers"}:
            continue  # of a sign-off, see test_signoff_docs.py
        assert re.search(rf"^{section}:", text, re.MULTILINE), f"{section} is no section of a matrix"
        # the example in the place of the section of the project's own matrix
        changed = re.sub(
            rf"^{section}:.*?(?=^\S|\Z)", lambda _, block=block: block, text, flags=re.MULTILINE | re.DOTALL
        )
        file = tmp_path / "matrix.yaml"
        file.write_text(changed)
        assert matrix.load(file)


def test_readme_and_code_agree_on_exit_codes() -> None:
    table = (PROJECT / "README.md").read_text().split("## Exit codes")[1].split("##")[0]
    assert {
        int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", table, re.MULTILINE)
    } == EXIT_MEANING


def test_what_one_makes_is_in_the_makefile() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = {target for page in PAGES for target in re.findall(r"`?make ([a-z]+)\b", page.read_text())}
    assert {"run", "test"} <= targets & set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_each_fault_in_the_table_has_its_test() -> None:
    named = set(re.findall(r"`(test_\w+)`", (PROJECT / "docs/faults.md").read_text()))
    sources = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert not {name for name in named if f"def {name}(" not in sources}
