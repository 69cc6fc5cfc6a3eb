"""`runner verify`: a thousand ways to change a bundle, and every one is found."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runner import results
from runner.errors import UsageError
from runner.model import CellResult, State
from runner.signoff import bundle
from runner.signoff.verify import Expected, Given, Verified, verify
from tests.unit import signoffs
from tests.unit.signoffs import AT, POLICY, WAIVERS, ended, run, sign

Tampering = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two runs with a comparison, which says GO WITH WAIVERS."""
    folder = tmp_path_factory.mktemp("whole")
    runs = run(folder, "device", "sm100", devices=["sm100"]), run(folder, "emulated", "sm80")
    before = run(folder, "before", "vllm=0.31.0")
    return sign(folder, *runs, waivers=WAIVERS, since=before)[0]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another bundle of the same shape: what a file might be swapped with."""
    folder = tmp_path_factory.mktemp("other")

    def later(row: CellResult) -> CellResult:
        return replace(row, ended_at=row.ended_at and "2026-11-30T12:00:01+00:00")

    runs = run(folder, "x", "sm100", devices=["sm100"], change=later), run(folder, "y", "sm80", change=later)
    more = WAIVERS.replace("nobody", "no one")
    policy = POLICY.replace("a test", "another")
    return sign(folder, *runs, waivers=more, policy=policy, since=run(folder, "z", "vllm=0.31.0", change=later))[0]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def checked(folder: Path, **more: Any) -> Verified:
    return verify(folder, now=AT, expected=Expected(**more))


def given(title: str, text: str) -> Given:
    return Given(title=title, sha256=hashlib.sha256(text.encode()).hexdigest(), name=Path(title).stem)


def found(folder: Path) -> bool:
    """Whether verify says that a bundle does not hold."""
    try:
        return bool(checked(folder).findings)
    except UsageError:
        return True


def values(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON that holds no other, and of every empty list and mapping."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    pairs = list(inside)
    if not pairs:
        yield at
    for key, value in pairs:
        yield from values(value, (*at, key))


def another(value: Any, luck: random.Random) -> Any:
    """A value of the same kind, which is not the same."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + luck.choice([1, -1, 0.5, 1000])
        case str():
            return luck.choice([value + "x", value[:-1], value.upper(), "device", "pass", ""] if value else ["x"])
        case list():
            return ["x"]
    return {"x": "y"}


def changed_field(name: str, at: tuple[Any, ...], luck: random.Random) -> Tampering:
    """One value of a JSON file, replaced; the file is written as it was written."""

    def change(folder: Path) -> None:
        path = folder / name
        data = json.loads(path.read_text())
        holder = data
        for step in at[:-1]:
            holder = holder[step]
        while (new := another(holder[at[-1]], luck)) == holder[at[-1]]:
            pass
        holder[at[-1]] = new
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in data) if isinstance(data, list) else ""
        path.write_text(f"[\n{rows}\n]\n" if rows else json.dumps(data, indent=1) + "\n")

    return change


def flipped(name: str, place: int, bit: int) -> Tampering:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[place % len(data)] ^= 1 << bit
        (folder / name).write_bytes(data)

    return change


def cut(name: str, luck: random.Random) -> Tampering:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: luck.randrange(len(data))])

    return change


def grown(name: str, luck: random.Random) -> Tampering:
    def change(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(luck.choice([b"\n", b" ", b"\0", b"x"]))

    return change


def word_of_yaml(name: str, luck: random.Random) -> Tampering:
    def change(folder: Path) -> None:
        words = (folder / name).read_text().split(" ")
        place = luck.choice([i for i, word in enumerate(words) if word.strip()])
        words[place] = luck.choice(["cpu", "9", "2027-12-31", words[place] + "x"])
        (folder / name).write_text(" ".join(words))

    return change


def dropped(name: str, luck: random.Random) -> Tampering:
    """A cell less in a list of them: of the results, the plan, a list of the statement."""

    def change(folder: Path) -> None:
        lines = (folder / name).read_text().split("\n")
        del lines[luck.randrange(len(lines))]
        (folder / name).write_text("\n".join(lines))

    return change


def removed(name: str) -> Tampering:
    return lambda folder: (folder / name).unlink()


def replaced(name: str, data: bytes) -> Tampering:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def renamed(name: str) -> Tampering:
    def change(folder: Path) -> None:
        (folder / name).rename((folder / name).with_suffix(".old"))

    return change


def linked(name: str) -> Tampering:
    """The same bytes, but from elsewhere."""

    def change(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return change


def of_whole_files(whole: Path, other: Path, luck: random.Random) -> Iterator[tuple[str, Tampering]]:
    """Removed, emptied, swapped with that of another bundle or with one of this, added, copied, renamed, linked."""
    names = files(whole)
    for name in names:
        yield f"{name} removed", removed(name)
        yield f"{name} emptied", replaced(name, b"")
        if (data := (other / name).read_bytes()) != (whole / name).read_bytes():
            yield f"{name} of another bundle", replaced(name, data)
        third = luck.choice([one for one in names if one != name])
        yield f"{name} swapped with {third}", replaced(name, (whole / third).read_bytes())
        yield f"a file beside {name}", replaced(f"{name}.more", b"x")
        yield f"{name} twice", replaced(f"{name}.bak", (whole / name).read_bytes())
        yield f"{name} renamed", renamed(name)
        yield f"{name} linked", linked(name)
    yield "an empty directory", lambda folder: (folder / "empty").mkdir()
    yield "a run more", lambda folder: shutil.copytree(folder / "inputs/runs/1", folder / "inputs/runs/3")
    for name in ("inputs", "inputs/runs/2", "inputs/since"):
        yield f"no {name}", lambda folder, name=name: shutil.rmtree(folder / name)


def of_fields(name: str, data: Any, luck: random.Random, more: int) -> Iterator[tuple[str, Tampering]]:
    """A value of each field that a JSON file has, wherever in its lists, and of `more` others."""
    fields: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for at in values(data):
        if at:
            fields.setdefault(tuple(step for step in at if isinstance(step, str)), []).append(at)
    every = [at for places in fields.values() for at in places]
    chosen = [luck.choice(places) for places in fields.values()] + luck.sample(every, min(more, len(every)))
    for at in chosen:
        yield f"{name} with another {at}", changed_field(name, at, luck)


def tamperings(whole: Path, other: Path) -> Iterator[tuple[str, Tampering]]:
    """At least a thousand, each field of each JSON file among them; seeded."""
    luck = random.Random(6)
    for name in files(whole):
        for _ in range(25):
            yield f"{name} flipped", flipped(name, luck.randrange(1 << 30), luck.randrange(8))
        for _ in range(4):
            yield f"{name} cut", cut(name, luck)
            yield f"{name} grown", grown(name, luck)
            yield f"{name} less a line", dropped(name, luck)
        if name.endswith(".yaml"):
            for _ in range(15):
                yield f"{name} with another word", word_of_yaml(name, luck)
        if name.endswith(".json"):
            yield from of_fields(name, json.loads((whole / name).read_text()), luck, more=12)
    yield from of_whole_files(whole, other, luck)


class Copy:
    """A bundle that is tampered with and made whole again, which is quicker than to copy it a thousand times."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.path = Path(shutil.copytree(whole, folder / "copy"))
        self._kept = {name: (whole / name).read_bytes() for name in files(whole)}

    def untouched(self) -> bool:
        there = sorted(str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir())
        return there == sorted(self._kept) and all(
            (self.path / name).read_bytes() == data and not (self.path / name).is_symlink()
            for name, data in self._kept.items()
        )

    def restore(self) -> None:
        for path in sorted(self.path.rglob("*"), reverse=True):
            name = str(path.relative_to(self.path))
            if path.is_symlink() or (path.is_file() and name not in self._kept):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        for name, data in self._kept.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)


def test_a_thousand_tamperings_are_found(whole: Path, other: Path, tmp_path: Path) -> None:
    assert not found(whole)
    assert not found(other)
    copy, hidden, tried = Copy(whole, tmp_path), [], 0
    for name, change in tamperings(whole, other):
        change(copy.path)
        if name != "an empty directory":
            assert not copy.untouched(), name
        tried += 1
        if not found(copy.path):
            hidden.append(name)
        copy.restore()
    assert copy.untouched()
    assert hidden == []
    assert tried > 1000


def mended(folder: Path) -> None:
    """SHA256SUMS made to fit again, as whoever tampers would."""
    (folder / bundle.SUMS).write_bytes(bundle.sums_of(bundle.digests(folder)))


def test_a_tampering_whose_digests_were_mended_is_found_by_what_follows_from_the_inputs(
    whole: Path, other: Path, tmp_path: Path
) -> None:
    every = [one for one in tamperings(whole, other) if "SHA256SUMS" not in one[0]]
    copy, hidden = Copy(whole, tmp_path), []
    for name, change in random.Random(7).sample(every, 120):
        change(copy.path)
        if (copy.path / "inputs").exists():
            mended(copy.path)
        if not found(copy.path):
            hidden.append(name)
        copy.restore()
    assert hidden == []


@pytest.mark.parametrize("output", ["signoff.md", "signoff.html", "signoff.json", "statement.json"])
def test_a_page_that_says_something_else_than_its_inputs_is_named(output: str, whole: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    text = (copy / output).read_text()
    assert "GO WITH WAIVERS" in text
    (copy / output).write_text(text.replace("GO WITH WAIVERS", "GO"))
    mended(copy)
    assert checked(copy).findings == (f"{output!r}: is not what the inputs give",)


@pytest.mark.parametrize("extra", ["more.txt", "inputs/more.txt", "inputs/runs/3/results.json"])
def test_a_file_that_no_bundle_has_is_named_even_where_it_is_in_the_sums(
    extra: str, whole: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    (copy / extra).parent.mkdir(exist_ok=True)
    (copy / extra).write_text("x")
    mended(copy)
    assert f"{extra!r}: is no part of a bundle" in checked(copy).findings


def test_what_was_changed_added_and_removed_is_named(whole: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    (copy / "signoff.md").write_text("GO")
    (copy / "more.txt").write_text("x")
    (copy / "inputs/policy.yaml").unlink()
    said = ("'inputs/policy.yaml': was removed", "'more.txt': was added", "'signoff.md': was changed")
    assert checked(copy).findings == said


def test_a_bundle_that_was_made_anew_is_found_by_its_digest_alone(whole: Path, tmp_path: Path) -> None:
    """Whoever can run the command can make another bundle that holds in itself: so the digest is to be kept apart."""
    digest = checked(whole).digest

    def lucky(row: CellResult) -> CellResult:
        return ended(row, State.PASS, "") if row.state is State.OVERFLOW else row

    runs = run(tmp_path, "device", "sm100", devices=["sm100"]), run(tmp_path, "emulated", "sm80", change=lucky)
    forged, _, _ = sign(tmp_path, *runs, policy=POLICY.replace("accept: pass", "accept: [pass, xpass]"))
    assert checked(forged).findings == ()
    assert "it is another one, or was made anew" in checked(forged, digest=digest).findings[0]
    assert checked(whole, digest=digest).findings == ()
    assert checked(whole, digest=digest.upper()).findings == ()


def test_a_dropped_cell_and_a_foreign_result_are_named_even_where_all_digests_fit(whole: Path, tmp_path: Path) -> None:
    rows = results.read(whole / "inputs/runs/1")
    foreign = replace(rows[1], id="0.31.0-x")
    for name, left, said in (
        ("dropped", rows[1:], "1 dropped, 0 of another run"),
        ("foreign", (rows[0], foreign, *rows[2:]), "1 dropped, 1 of another run"),
    ):
        copy = Path(shutil.copytree(whole, tmp_path / name))
        (copy / "inputs/runs/1/results.json").write_text(results.to_json(left))
        mended(copy)
        (finding,) = checked(copy).findings
        assert said in finding


def test_a_bundle_of_another_release_or_by_another_policy_is_no_answer(whole: Path) -> None:
    """What holds in itself may still be about something else than what is about to ship."""
    assert checked(whole, vllm="0.32.0", policy=given("policy.yaml", POLICY)).findings == ()
    about, by = checked(whole, vllm="0.33.0", policy=given("policy.yaml", POLICY + "\n")).findings
    assert about == "it is about vLLM 0.32.0, not 0.33.0"
    assert by.startswith("it was decided by another policy than policy.yaml")


def test_a_bundle_of_another_version_is_not_judged_by_this_one(whole: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    request = copy / "inputs/request.json"
    request.write_text(request.read_text().replace('"attnmatrix": "', '"attnmatrix": "9.'))
    mended(copy)
    (finding,) = checked(copy).findings
    assert "verify it with that version" in finding


def test_a_bundle_of_another_format_names_the_version_that_reads_it(whole: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    request = copy / "inputs/request.json"
    request.write_text(request.read_text().replace(',\n "format": 2', ""))
    mended(copy)
    (finding,) = checked(copy).findings
    assert "the bundle is of format 1, and this version reads 2: verify it with the version that made it" in finding


@pytest.mark.parametrize(
    ("later", "max_age_days", "said"),
    [
        (timedelta(days=12), None, []),
        # the results ended a day before the sign-off, and may be 14 days old
        (timedelta(days=13, seconds=1), None, ["as of 2026-12-14 it would be NO-GO, not GO WITH WAIVERS (stale"]),
        (timedelta(days=3), 3, []),
        (timedelta(days=3, seconds=1), 3, ["it was made on 2026-12-01, more than 3 days ago"]),
        (-timedelta(minutes=10), None, []),
        (-timedelta(minutes=11), None, ["which is after now"]),
    ],
)
def test_a_stale_bundle_is_found(later: timedelta, max_age_days: int | None, said: list[str], whole: Path) -> None:
    findings = verify(whole, now=AT + later, expected=Expected(max_age_days=max_age_days)).findings
    assert len(findings) == len(said)
    for finding, words in zip(findings, said, strict=True):
        assert finding.startswith("stale: ")
        assert words in finding


def test_a_waiver_that_has_ended_since_makes_a_bundle_stale(tmp_path: Path) -> None:
    policy = POLICY.replace("max_age_days: 14", "max_age_days: 400")
    folder, _, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=WAIVERS, policy=policy)
    last_day = AT + timedelta(days=30)  # 2026-12-31
    assert verify(folder, now=last_day).findings == ()
    (finding,) = verify(folder, now=last_day + timedelta(days=1)).findings
    assert "as of 2027-01-01 it would be NO-GO, not GO WITH WAIVERS (xfail: " in finding


def test_a_no_go_does_not_go_stale(tmp_path: Path) -> None:
    folder, _, _ = sign(tmp_path, run(tmp_path, "a"))
    assert verify(folder, now=AT + timedelta(days=300)).findings == ()


def test_what_is_no_bundle_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", signoffs.write(tmp_path, "file", "x")):
        with pytest.raises(UsageError, match="is no bundle"):
            verify(path, now=AT)
