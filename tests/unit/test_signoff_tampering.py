"""Who tampers makes everything anew that follows: digests, pages, and what a result says of its own cases.

What is not found then is a field that `runner/signoff/attested.py` names, and docs/signoff.md shows.
"""

import copy
import hashlib
import json
import pickle
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import matrix, outcome, plan, results, yaml_source
from runner.errors import RunnerError
from runner.model import CellResult, Evidence, State, Verdict
from runner.signoff import attested, bundle, inputs
from runner.signoff.inputs import RUNS
from runner.signoff.verify import Expected, Given, verify
from tests.unit.signoffs import AT, FIX, WAIVERS, ended, run, sign

TRIES = 300
SEED = 13
Steps = tuple[Any, ...]
TIME = re.compile(r"\d{4}-\d\d-\d\dT")
FIELDS = [field for kind in attested.KINDS for field in kind.fields]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that says GO WITH WAIVERS, of runs in which most things happen to cells that nobody asks about."""
    folder = tmp_path_factory.mktemp("whole")
    fates = iter([State.CRASH, State.INFRA, State.SKIPPED, State.REFUSED, State.FAIL, State.MISSING, State.NOT_RUN] * 2)

    def change(row: CellResult) -> CellResult:
        if row.axes["vllm"] == "0.32.0" or row.state is State.UNSUPPORTED:
            return replace(row, reruns=(State.PASS,)) if row.state is State.OVERFLOW else row
        return ended(row, next(fates), "it was so here")

    runs = (
        run(folder, "device", "sm100", devices=["sm100"]),
        run(folder, "emulated", "vllm=0.31.0,vllm=0.32.0", change=change),
        run(folder, "candidate", "vllm=fix", "sm80", candidates_=[FIX]),
    )
    return sign(folder, *runs, waivers=WAIVERS, since=run(folder, "before", "vllm=0.31.0"), vllm="0.32.0")[0]


@pytest.fixture(autouse=True, scope="module")
def _read_once() -> Iterator[None]:
    """A YAML text is parsed once: it says the same each time, and most tampering leaves all of them as they are."""
    parse, kept = yaml_source.parse, dict[tuple[str, ...], bytes]()

    def once(*text: str) -> yaml_source.Source:
        if text not in kept:
            kept[text] = pickle.dumps(parse(*text))
        return pickle.loads(kept[text])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_source, "parse", once)
        yield


@pytest.fixture(scope="module")
def outside(whole: Path) -> Expected:
    """What a release engineer gives: none of it comes from the bundle that is tampered with later."""

    def given(name: str, stem: str = "") -> Given:
        return Given(title=name, sha256=hashlib.sha256((whole / "inputs" / name).read_bytes()).hexdigest(), name=stem)

    return Expected(
        vllm="0.32.0",
        matrix=given("matrix.yaml"),
        policy=given("policy.yaml", "policy"),
        waivers=given("waivers.yaml"),
        since=given("since/results.json"),
    )


def holds(folder: Path, outside: Expected) -> bool:
    """Whether something may ship by this bundle."""
    found = verify(folder, now=AT, expected=outside)
    return not found.findings and found.decision != "NO-GO"


def mended(folder: Path) -> bool:
    """Pages and digests made anew with the product's own code; False where it finds that the inputs contradict."""
    try:
        for name, data in bundle.derive(folder).files.items():
            (folder / name).write_bytes(data)
    except RunnerError:
        return False
    (folder / bundle.SUMS).write_bytes(bundle.sums_of(bundle.digests(folder)))
    return True


def rolled_up(folder: Path) -> None:
    """Each result made to say what plan and cases say, as the product writes it where it can."""
    for path in (folder / "inputs" / RUNS).iterdir():
        try:
            chart = inputs.with_all_candidates(matrix.load(folder / "inputs/matrix.yaml"), path)
            planned = plan.from_json((path / "plan.json").read_bytes())
            rows = {row.id: row for row in results.read(path)}
            there = [replace(_rolled_up(one, rows[one.cell.id])) for one in planned.planned]
            told = inputs.judged("x", planned.planned, there, chart, AT.date())
            (path / "plan.json").write_text(plan.to_json(planned))
            (path / "results.json").write_text(results.to_json(told))
        except (RunnerError, ValueError, KeyError):
            continue


def _rolled_up(one: plan.Planned, row: CellResult) -> CellResult:
    row = replace(row, axes=dict(one.cell.axes), evidence=one.evidence)
    if not (one.runs and row.cases):
        return row
    found = {(over.buffer, over.how): over for case in reversed(row.cases) for over in reversed(case.overflow)}
    worst = outcome.worst(case.state for case in row.cases)
    return replace(row, state=worst, overflow=tuple(reversed(found.values())))


def test_the_bundle_holds_before_anybody_touches_it(whole: Path, outside: Expected) -> None:
    assert holds(whole, outside)
    states = {row.state for number in (1, 2) for row in results.read(whole / f"inputs/runs/{number}")}
    assert len(states) == 10


def paths(data: Any, at: Steps = ()) -> Iterator[Steps]:
    """Where every value is, those too that hold others."""
    yield at
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield from paths(value, (*at, key))


def field_of(at: Steps) -> tuple[str, ...]:
    return tuple(step for step in at if isinstance(step, str))


def value_at(data: Any, at: Steps) -> Any:
    for step in at:
        data = data[step]
    return data


def another(data: Any, at: Steps, luck: random.Random) -> Any:
    """Another value of the kind: one that the field has elsewhere in the file, or one that looks like it."""
    value = value_at(data, at)
    elsewhere = [found for place in paths(data) if field_of(place) == field_of(at) and len(place) == len(at)
                 for found in [value_at(data, place)] if found != value]  # fmt: skip
    if elsewhere and luck.random() < 0.5:
        return luck.choice(elsewhere)
    if isinstance(value, str) and TIME.match(value):
        return value.replace(":00:00", luck.choice([":07:00", ":00:01", ":99:00"]), 1)
    match value:
        case bool():
            return not value
        case int() | float():
            return luck.choice([value + 1, value + 1000, value * 2 + 0.5, -value - 1, float("nan"), float("inf")])
        case str():
            words = [*State, *Verdict, *Evidence, "2026-11-30T13:00:00+00:00", "0.31.0", "NVIDIA B200", "x", ""]
            return luck.choice([value + "x", value[:-1], *map(str, words)])
        case None:
            return luck.choice([0, "x", {}])
        case list():
            return luck.choice([[], value + value[:1], value[1:], list(reversed(value))])
    return luck.choice([{}, {**value, "more": "x"}, dict(list(value.items())[1:])])


def tampered_json(text: str, name: str, luck: random.Random, only: str = "") -> tuple[str, str]:
    """The file with one field of it changed, and which one: each is as likely as any other, or `only` that."""
    data = json.loads(text)
    places: dict[tuple[str, ...], list[Steps]] = {}
    for at in paths(data):
        places.setdefault(field_of(at), []).append(at)
    wanted = [one for one in places if not only or matches(" ".join(one) or "cells", only)]
    if not wanted:
        return text, only
    field = luck.choice(wanted)
    at = luck.choice(places[field])
    if at and luck.random() < 0.1 and isinstance(at[-1], str):
        value = json.dumps(value_at(data, at))
        before, gap = written(data, name), ":" if name == "results.json" else ": "
        if (pair := f'"{at[-1]}"{gap}{value}') in before:
            return before.replace(pair, f'"{at[-1]}"{gap}"x",{gap[1:]}{pair}', 1), f"{' '.join(field)} twice"
    new = another(data, at, luck)
    if not at:
        return written(new, name), "cells"
    changed = copy.deepcopy(data)
    value_at(changed, at[:-1])[at[-1]] = new
    if isinstance(at[-1], int) and at[-1] >= 0 and luck.random() < 0.3:
        del value_at(changed, at[:-1])[at[-1]]
    return written(changed, name), " ".join(field) or "cells"


def written(data: Any, name: str) -> str:
    """As the product writes each of its files, so that only what was changed differs."""
    match name:
        case "results.json":
            rows = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in data]
        case "plan.json":
            rows = [json.dumps(row) for row in data]
        case _:
            return json.dumps(data, indent=1) + ("\n" if name == "request.json" else "")
    return "[\n" + ",\n".join(rows) + "\n]\n"


def matches(field: str, pattern: str) -> bool:
    """Whether the table's words for fields are about this one."""
    return field == pattern or (pattern.endswith(" *") and field.startswith(pattern[:-2]))


def tampered_yaml(text: str, luck: random.Random) -> tuple[str, str]:
    words = text.split(" ")
    place = luck.choice([i for i, word in enumerate(words) if word.strip()])
    words[place] = luck.choice(["cpu", "9", "2027-12-31", "flash_attn", words[place] + "x", ""])
    return " ".join(words), "a word"


def named(file: str, field: str) -> bool:
    """Whether the table says that only an attestation shows a change of it."""
    return any(matches(f"{Path(file).name} {field}", one) for one in FIELDS)


def restored(whole: Path, folder: Path) -> None:
    """The bundle again where another tampering was, and nothing else; only what differs is written."""
    before = {path.relative_to(whole): path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    there = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name in there.keys() - before:
        (folder / name).unlink()
    for name, data in before.items():
        if there.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def attempt(
    whole: Path, folder: Path, luck: random.Random, *, roll_up: bool, only: str = ""
) -> tuple[str, str, bool] | None:
    """One tampering in a copy of the bundle, and all that follows made anew; None where the file is the same."""
    names = sorted(str(path.relative_to(whole)) for path in (whole / "inputs").rglob("*") if path.is_file())
    wanted = tuple(only.split(" ")[:1]) or (("results.json", "plan.json") if roll_up else ("",))
    file = luck.choice([name for name in names if name.endswith(wanted)])
    before = (whole / file).read_text()
    field = only.partition(" ")[2]
    after, field = (
        tampered_json(before, Path(file).name, luck, field) if file.endswith(".json") else tampered_yaml(before, luck)
    )
    if after == before:
        return None
    restored(whole, folder)
    (folder / file).write_text(after)
    if roll_up:
        rolled_up(folder)
    return file, field, mended(folder)


@pytest.mark.parametrize("roll_up", [False, True], ids=["pages made anew", "results rolled up too"])
def test_a_random_tampering_is_found_or_named_as_what_only_an_attestation_shows(
    roll_up: bool, whole: Path, outside: Expected, tmp_path: Path
) -> None:
    luck, tried, hidden, unnamed = random.Random(SEED + roll_up), 0, set(), []
    while tried < (TRIES // 2 if roll_up else TRIES):
        done = attempt(whole, tmp_path / "copy", luck, roll_up=roll_up)
        if done is None:
            continue
        tried += 1
        if holds(tmp_path / "copy", outside) and not same(whole, tmp_path / "copy"):
            hidden.add(f"{Path(done[0]).name} {done[1]}")
            if not named(*done[:2]):
                unnamed.append(done)
    assert unnamed == []
    assert hidden, "no tampering at all is hidden: then the table is not needed"


def test_a_file_that_is_only_written_again_is_the_same(whole: Path) -> None:
    """Else a tampering would be found by how the test writes it."""
    for path in (whole / "inputs").rglob("*.json"):
        assert written(json.loads(path.read_text()), path.name) == path.read_text()


def same(whole: Path, folder: Path) -> bool:
    """Whether rolling up has undone the tampering."""
    return (whole / bundle.SUMS).read_bytes() == (folder / bundle.SUMS).read_bytes()


@pytest.mark.parametrize("field", FIELDS)
def test_what_the_table_names_can_be_hidden_indeed(field: str, whole: Path, outside: Expected, tmp_path: Path) -> None:
    """Else the table excuses what verify finds."""
    luck = random.Random(SEED)
    for number in range(200):
        done = attempt(whole, tmp_path / "copy", luck, roll_up=bool(number % 2), only=field)
        if done and done[2] and holds(tmp_path / "copy", outside) and not same(whole, tmp_path / "copy"):
            return
    pytest.fail(f"verify finds every change of {field}: take it out of the table")


def test_the_docs_show_the_table(project: Path) -> None:
    assert attested.table() in (project / "docs/signoff.md").read_text()
