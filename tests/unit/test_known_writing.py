"""The text of a matrix whose known issues change: what is not spoken of stays byte for byte."""

import difflib
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner import matrix
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.known import spelling, writing
from runner.known.entries import Change, region
from runner.matrix import KnownIssue, Matrix
from runner.model import How, State
from tests.unit.known_tables import HEAD, TAIL, read

NEW = KnownIssue(
    selector=Selector({"arch": Condition("=", ("sm90",))}),
    state=State.FAIL,
    issue="https://example.org/new",
    because="so it is",
)
NEW_LINES = [
    "  - where: {arch: sm90}\n",
    "    state: fail\n",
    "    issue: https://example.org/new\n",
    "    because: so it is\n",
]


def changed(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that are gone, and those that are new."""
    lines = list(difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True)))
    return [x[2:] for x in lines if x.startswith("- ")], [x[2:] for x in lines if x.startswith("+ ")]


def narrowed(entry: KnownIssue, **values: tuple) -> KnownIssue:
    conditions = {axis: Condition("=", taken) for axis, taken in values.items()}
    return replace(entry, selector=Selector({**entry.selector.conditions, **conditions}))


@pytest.fixture
def text(project) -> str:
    return (project / "matrix.yaml").read_text()


def test_nothing_to_change_changes_nothing(text: str, shipped: Matrix) -> None:
    assert writing.rewritten(text, Change(), shipped) == text


def test_each_entry_of_the_shipped_matrix_can_be_taken_out_and_all_else_stays(text: str, shipped: Matrix) -> None:
    lines = text.splitlines(keepends=True)
    known = lines.index("known:\n")
    starts = [n for n, line in enumerate(lines) if n > known and line.startswith("  - where:")]
    for i, start in enumerate(starts):
        after = [n for n, line in enumerate(lines) if n > start and not line.startswith("    ")]
        new = writing.rewritten(text, Change({i: ()}), shipped)
        assert new == "".join(lines[:start] + lines[min(after, default=len(lines)) :])
        assert matrix.read(new, "matrix.yaml").known == shipped.known[:i] + shipped.known[i + 1 :]


def test_each_entry_of_the_shipped_matrix_can_be_narrowed_and_only_its_selector_changes(
    text: str, shipped: Matrix
) -> None:
    for i, entry in enumerate(shipped.known):
        less = narrowed(entry, hybrid=("off",), chunk=(64,))
        new = writing.rewritten(text, Change({i: (less,)}), shipped)
        gone, added = changed(text, new)
        assert len(gone) == len(added) == 1
        assert "hybrid: off" in added[0]
        found = matrix.read(new, "matrix.yaml").known
        assert region(found[i], shipped) == region(less, shipped)
        assert found[:i] + found[i + 1 :] == shipped.known[:i] + shipped.known[i + 1 :]


def test_only_the_axis_that_changes_is_written_anew(text: str, shipped: Matrix) -> None:
    less = narrowed(shipped.known[1], arch=("sm90",))
    gone, added = changed(text, writing.rewritten(text, Change({1: (less,)}), shipped))
    head = '  - where: {vllm: "0.32.0", case: [metadata, forward], backend: flashinfer, arch: '
    assert (gone, added) == ([head + '[sm90, sm120], spec_k: ">0",\n'], [head + 'sm90, spec_k: ">0",\n'])


def test_an_entry_that_becomes_two_is_written_twice_with_its_own_words(text: str, shipped: Matrix) -> None:
    entry = shipped.known[0]
    two = tuple(narrowed(entry, arch=(arch,)) for arch in ("sm80", "sm120"))
    gone, added = changed(text, writing.rewritten(text, Change({0: two}), shipped))
    assert len(gone) == 1
    assert len(added) == 7, "its selector, and a second one with all six lines"
    assert text.count(entry.because) == 1 == sum(entry.because in line for line in added)


def test_new_entries_stand_behind_the_last_one(text: str, shipped: Matrix) -> None:
    new = writing.rewritten(text, Change(added=(NEW,)), shipped)
    assert new == text + "".join(NEW_LINES), "in the shipped matrix the known issues are the last section"
    assert matrix.read(new, "matrix.yaml").known == (*shipped.known, NEW)


KNOWN = """\
known:
  # first of all
  - where: {arch: sm90}  # one arch
    state: fail
    issue: https://example.org/1  # by one
    because: so  # and no more

  # of the second
  -  # dashes - and - more
    state: overflow
    buffer: [indptr, mask]
    # a block
    where:
      arch:
        - sm90   # ninety
        - sm100
      spec_k: ">0"
    how:
    - raised
    issue: 'https://example.org/2'
    because: >-
      folded
      text

  - {where: {backend: flashinfer, arch: [sm90, sm100]}, state: crash, issue: docs/x.md, because: "a, b"}
  # the end of it
"""


@pytest.fixture
def full() -> str:
    return HEAD + KNOWN + TAIL


def fit(text: str, i: int, change: Callable[[KnownIssue], KnownIssue]) -> tuple[list[str], list[str]]:
    chart = read(text)
    wanted = change(chart.known[i])
    new = writing.rewritten(text, Change({i: (wanted,)}), chart)
    found = read(new).known
    assert region(found[i], chart) == region(wanted, chart)
    assert replace(found[i], selector=wanted.selector) == wanted
    assert found[:i] + found[i + 1 :] == chart.known[:i] + chart.known[i + 1 :]
    return changed(text, new)


def test_comments_and_quotes_around_a_change_stay(full: str) -> None:
    gone, added = fit(full, 0, lambda e: narrowed(e, spec_k=(1, 3)))
    assert gone == ["  - where: {arch: sm90}  # one arch\n"]
    assert added == ["  - where: {arch: sm90, spec_k: [1, 3]}  # one arch\n"]


def test_a_selector_in_a_block_gets_more_lines(full: str) -> None:
    gone, added = fit(full, 1, lambda e: narrowed(e, hybrid=("on",)))
    assert (gone, added) == ([], ["      hybrid: on\n"])


def test_a_list_in_a_block_becomes_one_in_brackets(full: str) -> None:
    gone, added = fit(full, 1, lambda e: narrowed(e, arch=("sm100",)))
    assert gone == ["      arch:\n", "        - sm90   # ninety\n", "        - sm100\n"]
    assert added == ["      arch: sm100\n"]


def test_fields_are_replaced_where_they_are_and_added_at_the_end_where_they_are_not(full: str) -> None:
    gone, added = fit(full, 1, lambda e: replace(e, buffer=("mask",), owner="me: myself", until=date(2027, 1, 31)))
    assert gone == ["    buffer: [indptr, mask]\n"]
    assert added == ["    buffer: mask\n", "    until: 2027-01-31\n", '    owner: "me: myself"\n']
    gone, added = fit(full, 0, lambda e: replace(e, until=date(2027, 1, 31)))
    assert (gone, added) == ([], ["    until: 2027-01-31\n"]), "behind the comment of the last line"


def test_an_entry_in_braces_stays_in_braces(full: str) -> None:
    _, added = fit(full, 2, lambda e: replace(narrowed(e, arch=("sm100",)), owner="me"))
    assert added == [
        '  - {where: {backend: flashinfer, arch: sm100}, state: crash, issue: docs/x.md, because: "a, b", owner: me}\n'
    ]


def test_an_entry_goes_without_the_comments_above_it(full: str) -> None:
    chart = read(full)
    for i in range(3):
        gone, added = changed(full, writing.rewritten(full, Change({i: ()}), chart))
        assert added == []
        assert not {"  # first of all\n", "  # of the second\n", "  # the end of it\n"} & set(gone)


def test_an_end_that_is_a_release_is_quoted_and_read_back(full: str) -> None:
    _, added = fit(full, 0, lambda e: replace(e, until="0.31.0", after=frozenset({"0.32.0"})))
    assert added == ['    until: "0.31.0"\n']


def test_without_any_entry_left_the_list_is_empty_and_can_be_begun_again(full: str) -> None:
    chart = read(full)
    empty = writing.rewritten(full, Change({0: (), 1: (), 2: ()}), chart)
    assert "known: []\n" in empty
    assert read(empty).known == ()
    again = writing.rewritten(empty, Change(added=(NEW,)), read(empty))
    assert read(again).known == (NEW,)
    assert "known:\n" in again
    assert TAIL in again


def test_a_matrix_without_known_issues_gets_the_section() -> None:
    text = HEAD + TAIL
    new = writing.rewritten(text, Change(added=(NEW,)), read(text))
    assert new == text + "\nknown:\n" + "".join(NEW_LINES)
    assert read(new).known == (NEW,)


def test_a_file_without_a_last_line_end_gets_one(full: str) -> None:
    text = HEAD + KNOWN.split("  # the end")[0].rstrip()
    new = writing.rewritten(text, Change(added=(NEW,)), read(text))
    assert new == text + "\n" + "".join(NEW_LINES)


def test_the_line_ends_of_the_file_are_kept(full: str) -> None:
    text = full.replace("\n", "\r\n")
    chart = read(text)
    wanted = replace(narrowed(chart.known[1], hybrid=("on",)), until=date(2027, 1, 1))
    new = writing.rewritten(text, Change({1: (wanted,)}, (NEW,)), chart)
    assert new.count("\n") == new.count("\r\n") == text.count("\n") + 2 + len(NEW_LINES)
    assert len(read(new).known) == 4


def test_a_list_in_brackets_is_left_to_a_person(full: str) -> None:
    text = HEAD + "known: [{where: {arch: sm90}, state: fail, issue: docs/x.md, because: so}]\n"
    with pytest.raises(UsageError, match="`known` is a list in brackets: write each entry on lines of its own"):
        writing.rewritten(text, Change(added=(NEW,)), read(text))


# What a matrix may hold: control characters and the like are refused before anything is written.
words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1).filter(str.strip)


@settings(max_examples=200, deadline=None)
@given(because=words, owner=words, issue=st.from_regex(r"https://[a-z]+/[!-~]+", fullmatch=True))
@example(because="on", owner="2027-01-31", issue="https://a/#b")
@example(because="a: b # c", owner="*a", issue="https://a/,]}")
@example(because="'", owner='"', issue="https://a/: ")
@example(because="~", owner="0x1F", issue="https://a/'")
def test_whatever_a_person_says_is_read_back_as_it_was_said(because: str, owner: str, issue: str) -> None:
    issue = issue.replace(" ", "")
    entry = replace(NEW, because=because, owner=owner, issue=issue)
    found = read(HEAD + "known:\n" + spelling.block(entry, 2) + TAIL).known
    assert found == (entry,)


def test_long_selectors_are_broken_over_lines(shipped: Matrix) -> None:
    selector = Selector({"vllm": Condition("=", shipped.axes["vllm"][:-1]), "arch": Condition("=", ("sm90", "sm100"))})
    entry = replace(NEW, selector=selector, state=State.OVERFLOW, buffer=("a", "b"), how=(How.RAISED,), flaky=True)
    lines = spelling.block(entry, 2).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith('  - where: {vllm: ["0.10.0", "0.10.1.1", ')
    assert lines[1].startswith('      "0.')
    assert "    buffer: [a, b]" in lines
    assert "    flaky: true" in lines
