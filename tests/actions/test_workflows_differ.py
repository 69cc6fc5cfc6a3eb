"""Our reading of workflows against GitHub's own parser: what is valid, and what it then means."""

import random
import re
from pathlib import Path
from typing import Any

from tests.actions import github_own, valid
from tests.actions.expressions import Unknown, condition, parts, text_of
from tests.actions.harness import read, triggers, with_defaults
from tests.actions.valid import needs_of

PROJECT = Path(__file__).parents[2]
FILES = {f".github/workflows/{path.name}": path.read_text() for path in (PROJECT / ".github/workflows").glob("*.yml")}


def as_github(value: Any) -> Any:
    """A value of ours, with an expression as GitHub has it: words around it become a call of format()."""
    match value:
        case dict():
            return {key: as_github(one) for key, one in value.items()}
        case list():
            return [as_github(one) for one in value]
    found = parts(value)
    if len(found) == 1:
        return value
    words, expressions = found[::2], [one.strip() for one in found[1::2]]
    if len(expressions) == 1 and not any(words):
        return {"${{ }}": expressions[0]}
    escaped = [one.replace("'", "''").replace("{", "{{").replace("}", "}}") for one in words]
    text = escaped[0] + "".join(f"{{{number}}}{one}" for number, one in enumerate(escaped[1:]))
    return {"${{ }}": f"format('{text}', {', '.join(expressions)})"}


def as_text(value: Any) -> Any:
    """A value of theirs as our harness reads a file: all are texts."""
    match value:
        case dict():
            return {key: as_text(one) for key, one in value.items()}
        case list():
            return [as_text(one) for one in value]
    return text_of(value)


def of_event(event: Any) -> Any:
    """Less what it takes and gives: GitHub's conversion has inputs in another form and no outputs."""
    if isinstance(event, dict):
        return {key: one for key, one in event.items() if key not in {"inputs", "secrets", "outputs"}}
    return event or {}


def inputs_of(event: Any) -> dict[str, Any]:
    """What each input is where nobody gives it. GitHub's parser reads no default of a number."""
    declared = (event or {}).get("inputs", {})
    optional = {name: {**one, "required": "false"} for name, one in declared.items() if one.get("type") != "number"}
    return {
        name: (declared[name].get("required", "false"), value)
        for name, value in with_defaults("", optional, {}).items()
    }


def their_inputs_of(event: Any) -> dict[str, Any]:
    inputs = {name: one for name, one in event.get("inputs", {}).items() if "type" in one}
    return {name: (text_of(one.get("required", False)), one.get("default", "")) for name, one in inputs.items()}


def test_every_workflow_of_ours_means_to_github_what_it_means_to_the_harness() -> None:
    answers = github_own.run(github_own.packages(), "workflows.mjs", {"files": FILES, "asked": [*FILES]})
    for (path, text), theirs in zip(FILES.items(), answers, strict=True):
        assert theirs["errors"] == [], path
        valid.refuse(path, text)
        document = read(path, text)
        assert as_text(theirs["document"]) == as_github(document), path
        events = triggers(document)
        assert {name: of_event(one) for name, one in events.items()} == {
            name: of_event(as_text(one)) for name, one in theirs["events"].items()
        }
        for name, event in theirs["events"].items():
            assert isinstance(event, list) or inputs_of(events[name]) == their_inputs_of(event), (path, name)
        assert [one["id"] for one in theirs["jobs"]] == [*document["jobs"]]
        for one in theirs["jobs"]:
            same_job(one, document["jobs"][one["id"]])


def same_job(theirs: dict[str, Any], job: dict[str, Any]) -> None:
    assert needs_of(job) == theirs["needs"]
    assert condition(job.get("if")) == theirs["condition"]
    assert job.get("uses") == theirs["calls"]
    assert [condition(step.get("if")) for step in job.get("steps", [])] == theirs["steps"]
    outputs = job.get("outputs", {})
    if "uses" in job:
        path = job["uses"].removeprefix("$/")
        outputs = (triggers(read(path, FILES[path]))["workflow_call"] or {}).get("outputs", {})
    assert [*outputs] == theirs["outputs"]


SMALL = """\
on:
  workflow_dispatch:
    inputs:
      many: {type: number, default: 3}
      really: {type: boolean, default: false}
  schedule: [{cron: "17 2 * * *"}]
concurrency: {group: "x-${{ inputs.many }}", cancel-in-progress: true}
env: {A: "${{ vars.A }}"}
jobs:
  first:
    runs-on: ubuntu-24.04
    outputs: {it: "${{ steps.say.outputs.it }}"}
    steps:
      - id: say
        if: hashFiles('x') != '' || failure()
        run: echo
        env: {B: "${{ secrets.B || '}}' }}"}
  second:
    needs: first
    if: always() && needs.first.outputs.it
    strategy: {fail-fast: false, matrix: "${{ fromJSON(needs.first.outputs.it) }}"}
    runs-on: ["${{ matrix.a }}", x]
    timeout-minutes: 5
    steps: [{uses: actions/checkout@v7, with: {ref: "${{ matrix.ref }}"}}]
  third:
    needs: [first, second]
    uses: $/called.yml
    with: {must: "${{ needs.first.result }}", flag: true}
    secrets: {key: "${{ secrets.KEY }}"}
"""
CALLED = """\
on:
  workflow_call:
    inputs: {must: {type: string, required: true}, flag: {type: boolean, default: false}}
    secrets: {key: {required: true}, other: {required: false}}
    outputs: {o: {value: "${{ jobs.a.outputs.o }}"}}
jobs: {a: {runs-on: x, outputs: {o: "1"}, steps: [{run: echo}]}}
"""
CHANGED: list[tuple[str, str]] = [
    ("    needs: first\n", "    needs: [first]\n"),
    ("always() && needs", "success() || needs"),
    ("    needs: first\n", "    needs: fourth\n"),
    ("    outputs: {it:", "    needs: second\n    outputs: {it:"),
    ("    needs: first\n", "    need: first\n"),
    ("  second:\n", "  2nd:\n"),
    ("  second:\n", "  __second:\n"),
    ("      - id: say\n", "      - {id: say, run: echo}\n      - id: SAY\n"),
    ("      - id: say\n", "      - id: say it\n"),
    ("      - id: say\n", "      - ident: say\n"),
    ("        run: echo\n", "        run: echo\n        uses: a/b@v1\n"),
    ("        run: echo\n", ""),
    ("    runs-on: ubuntu-24.04\n", ""),
    ("    timeout-minutes: 5\n", "    timeout-minutes: soon\n"),
    ("    timeout-minutes: 5\n", "    timeout-minutes: ${{ fromJSON('5') }}\n"),
    ("cancel-in-progress: true", "cancel-in-progress: perhaps"),
    ("cancel-in-progress: true", "cancel: true"),
    ("fail-fast: false", "fail-fast: never"),
    ("default: 3", "default: three"),
    ("default: false}\n  schedule", "default: no}\n  schedule"),
    ("type: number", "type: integer"),
    ('cron: "17 2 * * *"', 'cron: "often"'),
    ("  schedule:", "  nightly:"),
    ("on:\n", "On:\n"),
    ("${{ inputs.many }}", "${{ inputs.many"),
    ("${{ inputs.many }}", "${{ steps.a.outputs.b }}"),
    ("${{ inputs.many }}", "${{ secrets.A }}"),
    ("${{ inputs.many }}", "${{ matrix.a }}"),
    ("${{ inputs.many }}", "${{ contains('a') }}"),
    ("${{ inputs.many }}", "${{ contains('a', 'b', 'c') }}"),
    ("${{ inputs.many }}", "${{ always() }}"),
    ("${{ vars.A }}", "${{ env.A }}"),
    ("${{ vars.A }}", "${{ secrets.A }}"),
    ("${{ vars.A }}", "${{ hashFiles('a') }}"),
    ("needs.first.outputs.it\n", "matrix.a\n"),
    ("needs.first.outputs.it\n", "hashFiles('a')\n"),
    ("needs.first.outputs.it\n", "success('first')\n"),
    ("needs.first.outputs.it\n", "always(1)\n"),
    ("needs.first.outputs.it\n", "github.event_name == \"push\"\n"),
    ("needs.first.outputs.it\n", "secrets.A\n"),
    ("failure()", "failure('x')"),
    ("failure()", "secrets.A"),
    ("failure()", "matrix.a"),
    ("failure()", "nothing.a"),
    ("failure()", "toJson(github) =="),
    ("needs: first\n", 'needs: "${{ github.sha }}"\n'),
    ("$/called.yml", "$/${{ github.sha }}.yml"),
    ("    uses: $/called.yml\n", "    uses: $/called.yml\n    runs-on: x\n"),
    ("    uses: $/called.yml\n", "    uses: $/called.yml\n    timeout-minutes: 5\n"),
    ("{must: \"${{ needs.first.result }}\", flag: true}", "{flag: true}"),
    ("flag: true}", "other: true}"),
    ("flag: true}", "FLAG: true}"),
    ("{key:", "{lock:"),
    ("    secrets: {key: \"${{ secrets.KEY }}\"}\n", ""),
    ("    secrets: {key: \"${{ secrets.KEY }}\"}\n", "    permissions: {contents: all}\n"),
    ("env: {A:", "env: [A]\nx: {A:"),
    ("jobs:\n", "job:\n"),
    ("    steps: [{uses", "    steps: {uses: x}\n    env: [{uses"),
]  # fmt: skip
"""What is changed in the small workflow above; most of it makes it wrong."""


def is_taken(path: str, files: dict[str, str]) -> bool:
    """By our harness, before anything runs."""
    try:
        valid.refuse(path, files[path])
        for job in read(path, files[path])["jobs"].values():
            if "uses" in job:
                called = files.get(job["uses"].removeprefix("$/"))
                if called is None:
                    return False
                valid.refuse_call(path, job, triggers(read(path, called))["workflow_call"] or {})
    except Unknown:
        return False
    return True


def differing(broken: dict[str, tuple[str, str]], files: dict[str, str]) -> tuple[list[Any], int]:
    """What only one of the two takes, of texts by name with what was changed in them; and how many GitHub takes."""
    files = {**files, **{name: text for name, (text, _) in broken.items()}}
    answers = github_own.run(github_own.packages(), "workflows.mjs", {"files": files, "asked": [*broken]})
    found = [
        (change, "GitHub refuses it", theirs["errors"]) if theirs["errors"] else (change, "we refuse it")
        for (name, (_, change)), theirs in zip(broken.items(), answers, strict=True)
        if is_taken(name, files) == bool(theirs["errors"])
    ]
    return found, sum(not theirs["errors"] for theirs in answers)


def test_what_github_refuses_the_harness_refuses() -> None:
    texts = {"small.yml": (SMALL, "nothing")}
    for number, (old, new) in enumerate(CHANGED):
        assert SMALL.count(old) == 1, old
        texts[f"changed{number}.yml"] = (SMALL.replace(old, new), f"{old!r}: {new!r}")
    found, taken = differing(texts, {"called.yml": CALLED})
    assert found == []
    assert is_taken("small.yml", {"small.yml": SMALL, "called.yml": CALLED})
    assert 1 < taken < len(texts) / 4


WORDS = ["needs", "plan", "always()", "${{ github.sha }}", "${{ secrets.X }}", "${{ steps.a.outputs.b }}", "{}", "jobs"]
PIECES = ["needs", "plan", "github", "inputs", "vars", "steps", "matrix", "secrets", "read", "always()", "'", "}}",
          "==", "&&", "string", "true", "write", "fromJSON", "uses", "$/"]  # fmt: skip
OTHERS = ["", "runner", "env", "secrets", "job", "foo", "1", "x.y", "format"]


def changed(draw: random.Random, text: str) -> tuple[str, str]:
    """A line left out, with another key, another value or another piece, and what was done."""
    lines = text.split("\n")
    at = draw.choice(
        [number for number, line in enumerate(lines) if line.strip() and not re.search(r"#|matrix: \$", line)]
    )
    key, colon, value = lines[at].partition(":")
    new = draw.choice(
        [
            None,
            f"{key}x{colon}{value}",
            f"{key}{colon} {draw.choice(WORDS)}",
            lines[at].replace(draw.choice(PIECES), draw.choice(OTHERS), 1),
        ]
    )
    return "\n".join([*lines[:at], *([] if new is None else [new]), *lines[at + 1 :]]), f"{lines[at]!r}: {new!r}"


def test_no_change_to_a_workflow_of_ours_is_taken_by_one_alone() -> None:
    """Not among the changes: a number or nothing where a text is to stand, and a strategy without a matrix. They are
    taken by GitHub, and not by our schema."""
    draw = random.Random(20261201)
    texts: dict[str, tuple[str, str]] = {}
    while len(texts) < 120:
        path = draw.choice([*FILES])
        text, what = changed(draw, FILES[path])
        if text != FILES[path]:
            texts[f"changed{len(texts)}.yml"] = (text, f"{path}: {what}")
    found, taken = differing(texts, FILES)
    assert found == []
    assert len(texts) / 10 < taken < len(texts) / 2
