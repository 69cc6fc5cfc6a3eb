"""A bundle: what is in it, that it follows from its inputs alone, and that others can read it."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from markdown_it import MarkdownIt

from runner import cli, journal, plan, results
from runner.errors import RunnerError, UsageError
from runner.model import CellFinished, CellOutcome, CellResult, Evidence, RunFinished, State
from runner.signoff import bundle, terminal
from tests.unit import signoffs
from tests.unit.signoffs import AT, POLICY, WAIVERS, ended, hostile_bundle, run, sign

PRODUCED = {"signoff.md", "signoff.html", "signoff.json", "statement.json"}


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A bundle that says GO WITH WAIVERS."""
    return sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=WAIVERS)[0]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_bundle_has_its_inputs_the_pages_and_the_digest_of_each(go: Path) -> None:
    inputs = {"request.json", "policy.yaml", "waivers.yaml", "matrix.yaml", "runs/1/results.json", "runs/1/plan.json"}
    assert names(go) == PRODUCED | {"SHA256SUMS"} | {f"inputs/{name}" for name in inputs}
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=go, capture_output=True, text=True)
    assert checked.returncode == 0
    assert checked.stdout.count(": OK") == len(names(go)) - 1


def test_the_digest_that_is_printed_is_that_of_the_sums(tmp_path: Path) -> None:
    folder, _, digest = sign(tmp_path, run(tmp_path, "a"))
    assert digest == "sha256:" + hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest()


def test_the_same_inputs_give_the_same_bytes_whatever_the_process_hashes_by(tmp_path: Path) -> None:
    """Python's sets change their order from process to process."""
    a_run = run(tmp_path, "a", devices=["sm100"])
    policy, waivers = signoffs.write(tmp_path, "p.yaml", POLICY), signoffs.write(tmp_path, "w.yaml", WAIVERS)
    made = []
    for seed in ("0", "1", "77"):
        out = tmp_path / seed
        words = ["signoff", a_run, "--policy", policy, "--waivers", waivers, "--at", AT.isoformat(), "--out", out]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo" if seed == "1" else "UTC"}
        subprocess.run([sys.executable, "-m", "runner", *words], check=True, capture_output=True, env=environment)
        made.append({name: (out / name).read_bytes() for name in names(out)})
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 11


def test_the_statement_is_read_and_found_valid_by_in_totos_own_package(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a", devices=["sm100"])
    folder, _, _ = sign(tmp_path, a_run, waivers=WAIVERS, url="https://ci.example/runs/7")
    text = (folder / "statement.json").read_text()
    statement = json_format.Parse(text, statement_pb2.Statement())  # unknown fields are an error
    Statement.copy_from_pb(statement).validate()
    assert statement.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
    assert {subject.name: subject.digest["sha256"] for subject in statement.subject} == {
        "inputs/runs/1/results.json": hashlib.sha256((a_run / "results.json").read_bytes()).hexdigest(),
        f"image sha256:{'ab' * 32}": "ab" * 32,
    }
    predicate = json_format.ParseDict(json.loads(text)["predicate"], test_result_pb2.TestResult())
    assert (predicate.result, predicate.url) == ("WARNED", "https://ci.example/runs/7")
    # three archs' cells on the device and one emulated pass; the two with a known issue are waived
    assert (len(predicate.passed_tests), len(predicate.warned_tests), len(predicate.failed_tests)) == (5, 2, 0)
    assert "Ampere: 0.32.0-flashinfer-sm80-hybrid_on-k3-c64-small" in predicate.warned_tests
    configuration = {one.name: one.digest["sha256"] for one in predicate.configuration}
    assert set(configuration) == {f"inputs/{name}" for name in (
        "request.json", "policy.yaml", "waivers.yaml", "matrix.yaml", "runs/1/plan.json"
    )}  # fmt: skip
    for name, digest in configuration.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert predicate.configuration[0].annotations["decision"] == "GO WITH WAIVERS"


def test_a_no_go_is_failed_in_the_statement_and_every_required_cell_is_in_one_of_its_lists(tmp_path: Path) -> None:
    folder, made, _ = sign(tmp_path, run(tmp_path, "a"))
    predicate = json.loads((folder / "statement.json").read_text())["predicate"]
    assert predicate["result"] == "FAILED"
    lists = [predicate[f"{kind}Tests"] for kind in ("passed", "warned", "failed")]
    assert [len(one) for one in lists] == [1, 0, 6]
    assert len({name for one in lists for name in one}) == 7 == len(made.judgement.cells)


def test_what_is_given_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a")
    (tmp_path / "empty").mkdir()
    both = run(tmp_path, "both", "vllm=*")
    for said, runs, more in (
        ("has no results.json: name a run directory", (tmp_path / "empty",), {}),
        ("has no results.json", (tmp_path / "nowhere",), {}),
        ("the runs are of vllm 0.31.0, 0.32.0: say with --vllm", (both,), {}),
        ("the matrix has no vllm '0.33.0', did you mean", (a_run,), {"vllm": "0.33.0"}),
        ("a run of one release is needed, and this one is of 2", (a_run,), {"since": both}),
        ("no such file", (a_run,), {"matrix": tmp_path / "none.yaml"}),
    ):
        with pytest.raises(UsageError, match=said):
            sign(tmp_path, *runs, **more)
        assert not (tmp_path / "bundle").exists()
    assert not list(tmp_path.glob(".bundle*"))


def test_a_run_that_was_killed_is_to_be_finished_first(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a")
    (a_run / "results.json").rename(a_run / "events.jsonl")
    with pytest.raises(UsageError, match=r"`runner resume .*` finishes it"):
        sign(tmp_path, a_run)


def test_results_that_say_something_else_than_their_journal_are_refused(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a", devices=["sm100"])
    rows = {row.id: row for row in results.read(a_run)}
    with journal.Journal(a_run / "events.jsonl") as events:
        for one in plan.from_json((a_run / "plan.json").read_bytes()).planned:
            row = rows[one.cell.id]
            if not one.cell.unsupported:
                outcome = CellOutcome(
                    cell=one.cell, evidence=one.evidence, cases=row.cases, duration_s=row.duration_s,
                    environment=row.environment, resolved=row.resolved, ended_at=row.ended_at,
                )  # fmt: skip
                events.append(CellFinished(outcome=outcome))
        events.append(RunFinished())
    whole = (a_run / "results.json").read_text()
    sign(tmp_path, a_run, out="whole")
    for number, (old, new) in enumerate(
        (
            ('"state":"overflow","verdict":"xfail"', '"state":"pass","verdict":"pass"'),
            ('"ended_at":"2026-11-30', '"ended_at":"2026-12-01'),
            ('"recipe_digest":"aa11"', '"recipe_digest":"bb22"'),
            ('"required":6', '"required":1'),
        )
    ):
        assert old in whole
        (a_run / "results.json").write_text(whole.replace(old, new, 1))
        with pytest.raises(UsageError, match=r"results.json says of .* what events.jsonl does not: "):
            sign(tmp_path, a_run, out=str(number))


def test_a_sign_off_is_not_written_over(go: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already: a sign-off is not written over"):
        sign(tmp_path, tmp_path / "a")


def rewritten(path: Path, change: dict[int, CellResult | None] | None = None, **fields: object) -> None:
    rows = list(results.read(path))
    rows[0] = replace(rows[0], **fields) if fields else rows[0]
    for number, row in (change or {}).items():
        rows[number : number + 1] = [row] if row else []
    (path / "results.json").write_text(results.to_json(rows))


def test_results_that_are_not_those_of_the_plan_are_refused(tmp_path: Path) -> None:
    def a_run(name: str) -> Path:
        return run(tmp_path, name, devices=["sm100"])

    rows = results.read(a_run("first"))
    for name, change, fields, said in (
        ("dropped", {3: None}, {}, "of its plan of 8 cells: 1 dropped, 0 of another run: 0.32.0-flashinfer-sm100"),
        ("foreign", {3: replace(rows[3], id="other")}, {}, "1 dropped, 1 of another run"),
        ("twice", {3: rows[2]}, {}, "1 dropped, 0 of another run"),
        ("order", {2: rows[3], 3: rows[2]}, {}, "their order, or a cell twice"),
        ("axes", {}, {"axes": {**rows[0].axes, "arch": "sm100"}}, "is planned with other axes"),
        ("evidence", {}, {"evidence": Evidence.DEVICE}, "was planned as emulated, and its result says device"),
        (
            "gpu",
            {2: replace(rows[2], environment={**rows[2].environment, "gpu": ""})},
            {},
            "says device and names no GPU",
        ),
    ):
        path = a_run(name)
        rewritten(path, change, **fields)
        with pytest.raises(UsageError, match=said):
            sign(tmp_path, path)


def test_a_cell_that_another_matrix_meant_otherwise_is_refused(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a", devices=["sm100"])
    other = signoffs.write(tmp_path, "other.yaml", signoffs.MATRIX.replace("max_num_seqs: 4", "max_num_seqs: 8"))
    with pytest.raises(UsageError, match=r"run \S+/a was planned with another matrix: .* has the load"):
        sign(tmp_path, a_run, matrix=other)
    excluded = signoffs.MATRIX.replace("arch: sm80, spec_k: 3}}", "arch: sm80}}").replace("sm80, spec_k: 3}", "sm80}")
    strict = run(tmp_path, "strict", text=excluded)
    with pytest.raises(UsageError, match="a rule there that excludes it"):
        sign(tmp_path, strict, matrix=a_run / "matrix.yaml")


def test_one_name_for_two_candidates_is_refused(tmp_path: Path) -> None:
    paths = []
    for name, digest in (("a", "1" * 16), ("b", "2" * 16)):
        path = run(tmp_path, name)
        kept = [{"name": "fix", "kind": "patch", "path": "fix.patch", "over": "0.32.0", "digest": digest}]
        (path / "candidates.json").write_text(json.dumps(kept))
        paths.append(path)
    with pytest.raises(
        UsageError, match=r"candidate 'fix' is 1{16} over 0.32.0 in run 1, and 2{16} over 0.32.0 in run 2"
    ):
        sign(tmp_path, *paths, vllm="0.32.0")


def test_what_changed_since_the_last_release_is_on_the_page(tmp_path: Path) -> None:
    before = run(tmp_path, "before", "vllm=0.31.0")
    now = run(tmp_path, "now", "sm80")
    folder, _, _ = sign(tmp_path, now, since=before)
    page = (folder / "signoff.md").read_text()
    section = page.split("## What changed since the run before")[1].split("##")[0]
    assert "/before (vLLM 0.31.0)`" in section
    # 0.31.0 passes everywhere, since the known issues are 0.32.0's; sm80's two flashinfer cells have the overflow now
    assert "| regressed<br>passed or was refused before, has trouble now | 2 | 2 |" in section
    assert "`pass → overflow raised in paged_kv_indptr`" in section
    assert "| gone<br>was judged before, is not now | 4 |" in section


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in {"href", "src"}}


def test_hostile_words_do_nothing_in_the_pages(tmp_path: Path) -> None:
    folder = hostile_bundle(tmp_path)
    html, markdown = (folder / "signoff.html").read_text(), (folder / "signoff.md").read_text()
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    for text in (html, markdown):
        assert "alert(1)" in text  # it is shown
        assert "\x1b" not in text
        assert "\u202e" not in text
    own, of_markdown = Elements(), Elements()
    own.feed(html)
    of_markdown.feed(rendered)
    assert not own.tags & {"script", "img", "iframe", "object", "form", "input", "svg"}
    assert not any(name.startswith("on") for name in own.attributes)
    assert not any(link.startswith(("javascript", "//", "data")) for link in own.links)
    tables = {"table", "thead", "tbody", "tr", "th", "td"}
    assert of_markdown.tags <= {"h1", "h2", "p", "strong", "ul", "li", "code", "br"} | tables
    assert not of_markdown.links


def test_hostile_words_do_nothing_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = hostile_bundle(tmp_path)
    terminal.show(bundle.derive(folder), folder, "sha256:x")
    cli.main(["verify", str(folder), "--at", AT.isoformat()])
    (folder / "inputs/runs/1/\x1b[31m\u202e").write_text("x")
    cli.main(["verify", str(folder), "--at", AT.isoformat()])
    said = capsys.readouterr()
    assert "alert(1)" in said.out
    assert "no file of a bundle has such a name" in said.out
    assert not {"\x1b", "\u202e"} & set(said.out + said.err)


def test_what_is_proven_is_said_with_the_hardware_and_its_driver(go: Path) -> None:
    section = (go / "signoff.md").read_text().split("## What is proven")[1].split("\n## ")[0]
    assert "4 of the results shown were obtained on a GPU." in section
    assert "| device<br>on that GPU | `sm100` | `NVIDIA B200, driver 590.1` | 4 | 4 pass |" in section
    # of sm80's three cells one passes; the two with a known issue are waived, and proven is not what they are
    assert "| `sm80` | `no GPU` | 1 | 1 pass |" in section


def test_a_table_of_markdown_keeps_its_columns_whatever_stands_in_it(tmp_path: Path) -> None:
    rendered = MarkdownIt("commonmark").enable("table").render((hostile_bundle(tmp_path) / "signoff.md").read_text())
    for table in rendered.split("<table>")[1:]:
        rows = table.split("</table>")[0].split("<tr>")[1:]
        assert len({row.count("<td") + row.count("<th>") + row.count("<th ") for row in rows}) == 1


def test_the_html_is_one_file_without_script_that_loads_nothing(go: Path) -> None:
    html = (go / "signoff.html").read_text()
    elements = Elements()
    elements.feed(html)
    assert "script" not in elements.tags
    assert not {"link", "img", "iframe"} & elements.tags
    assert "default-src 'none'" in html
    assert "url(" not in html
    assert "@import" not in html


def test_a_thousand_kinds_of_gap_are_counted_and_the_page_stays_under_its_limit(tmp_path: Path) -> None:
    def change(row: CellResult) -> CellResult:
        return row if row.state is State.UNSUPPORTED else ended(row, State.FAIL, row.id * 30_000)

    folder, _, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=change))
    assert len((folder / "signoff.md").read_bytes()) < 1_000_000


def test_the_commands_say_the_decision_and_exit_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = run(tmp_path, "a", devices=["sm100"]), run(tmp_path, "b")
    files = ["--policy", str(signoffs.write(tmp_path, "p.yaml", POLICY)), "--at", AT.isoformat()]
    waivers = ["--waivers", str(signoffs.write(tmp_path, "w.yaml", WAIVERS))]
    assert cli.main(["signoff", str(good), *files, *waivers]) == 0
    said = capsys.readouterr().out
    assert said.startswith("GO WITH WAIVERS: vLLM 0.32.0 by policy p\n")
    (where,) = (good / "signoff").iterdir()
    assert where.name == "20261201T120000Z-p"
    digest = said.split()[-1]
    assert cli.main(["verify", str(where), "--digest", digest, "--at", AT.isoformat()]) == 0
    head = f"holds, and says GO WITH WAIVERS: vLLM 0.32.0 by policy p\n{digest}\n"
    assert capsys.readouterr().out.startswith(f"{head}not checked, only the bundle itself says so:\n")
    given = ["--vllm", "0.32.0", "--matrix", str(good / "matrix.yaml"), *files, *waivers, "--digest", digest]
    assert cli.main(["verify", str(where), *given]) == 0
    assert capsys.readouterr().out == head
    assert cli.main(["signoff", str(bad), *files, "--json", "--out", str(tmp_path / "bad")]) == 1
    assert json.loads(capsys.readouterr().out)["decision"] == "NO-GO"
    assert cli.main(["verify", str(tmp_path / "bad"), "--at", AT.isoformat()]) == 1  # it holds, and nothing may ship
    assert "holds, and says NO-GO" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "{run}"], "is no bundle"),
        (["verify", "{run}", "--digest", "sha256:12"], "--digest 'sha256:12': write sha256: and 64 hex digits"),
        (["verify", "{run}", "--matrix", "sha256:12"], "--matrix 'sha256:12': write sha256: and 64 hex digits"),
        (["verify", "{run}", "--matrix", "none.yaml"], "none.yaml: cannot be read (No such file or directory): give"),
        (["verify", "{run}", "--waivers", "{run}/plan.json", "--no-waivers"], "leave one of them out"),
        (["verify", "{run}", "--signer", "me@example.com"], "--attestation and --signer belong together"),
        (["signoff", "{run}", "--policy", "relaese"], "no policy is called 'relaese', did you mean 'release'?"),
        (["signoff", "{run}", "--policy", "./none.yaml"], "none.yaml: no such file"),
        (["signoff", "{run}", "--policy", "release", "--at", "soon"], "write a time such as"),
    ],
)
def test_what_cannot_be_obeyed_is_a_usage_error(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run = run(tmp_path, "a")
    assert cli.main([word.replace("{run}", str(a_run)) for word in words]) == 2
    assert said in capsys.readouterr().err


def test_runner_errors_are_what_strange_bytes_end_in(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a")
    for name in ("results.json", "plan.json", "matrix.yaml"):
        whole = (a_run / name).read_bytes()
        for strange in (b"", b"\xff\xfe", b"[1]", b"{}", base64.b85encode(whole)[:100]):
            (a_run / name).write_bytes(strange)
            with pytest.raises(RunnerError):
                sign(tmp_path, a_run)
        (a_run / name).write_bytes(whole)
