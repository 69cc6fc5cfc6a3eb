"""The terminal report: legible at 80 and 160 columns, adds up, and cannot be steered by what it prints."""

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from runner.model import CaseResult, Evidence, How, State, Verdict
from runner.reports import console as consoles
from runner.reports import heatmap, terminal
from tests.unit import synthetic
from tests.unit.synthetic import INDPTR, ISSUE, cause, cell, failed, overflow, overflowed

HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]x[/bold red] :smile: \u202egnp\u200b\x00\r| `a` <b> @all"


def shown(rows, width=80, code=0, **options):
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    terminal.show(console, tuple(rows), exit_code=code, **options)
    return out.getvalue()


def small():
    axes = {**synthetic.AXES, "arch": ("sm90", "sm100", "cpu"), "spec_k": (0, 3), "chunk": (64,)}
    axes |= {"backend": ("flashinfer", "flash_attn", "cpu_attn"), "load": ("solo", "server")}
    return tuple(synthetic.results(axes))


def test_an_axis_has_a_map_for_each_value_and_none_is_named_that_says_nothing():
    axes = {**synthetic.AXES, "backend": ("flash_attn",), "load": ("solo",), "kv_dtype": ("auto", "fp8")}
    axes |= {"page_size": ("load",), "draft": ("ngram",), "cudagraph": ("full",)}
    assert [block.title for block in heatmap.blocks(tuple(synthetic.results(axes)))] == [
        "vllm 0.32.0, load solo, kv_dtype auto, cudagraph full",
        "vllm 0.32.0, load solo, kv_dtype fp8, cudagraph full",
    ]


def test_a_small_run_reads_as_intended():
    expected = """\
run 1

vllm 0.32.0, load solo       vllm 0.32.0, load server
             chunk c64                    chunk c64
            hybrid on off                hybrid on off
                 k 03 03                      k 03 03
flashinfer sm90  e OO OO     flashinfer sm90  e .. ..
           sm100 e OO OO                sm100 e .. ..
flash_attn sm90  e .. ..     flash_attn sm90  e .. ..
           sm100 e .. ..                sm100 e .. ..
cpu_attn   cpu   c .. ..     cpu_attn   cpu   c .. ..

. pass   O overflow   e emulated   c cpu
32 results: emulated (vLLM's own Python on a CPU that presents the arch; no GPU
kernel ran).
8 results: cpu (vLLM's CPU backend).

3 groups unexpected

overflow resized in cum_seq_lens_kv · flashinfer · 4 cells · emulated
  where     flashinfer sm100 solo
  case      test_prefill_lengths_have_an_entry_for_each_row
  buffer    required 6, allocated 2
  batch     query_lens 320; seq_lens 320
  message   cum_seq_lens_kv is short
  repro     runner repro 0.32.0-flashinfer-sm100-hybrid_on-k0-c64-solo

overflow raised in paged_kv_indptr · flashinfer · 4 cells · emulated
  where     flashinfer sm90 solo
  case      test_paged_kv_buffers_hold_the_worst_batches
  buffer    required 6, allocated 2; at worst required 9, allocated 2
  batch     query_lens 320; seq_lens 320
  message   ValueError: provided out is the wrong size for the accumulation.
  repro     runner repro 0.32.0-flashinfer-sm90-hybrid_on-k0-c64-solo

overflow short in draft_mask · flashinfer · 2 cells · emulated
  where     flashinfer sm90 k3 solo
  case      test_draft_mask_has_a_row_for_each_window
  buffer    required 2, allocated 1
  batch     query_lens 4; seq_lens 4
  message   1 row for 2 decodes
  repro     runner repro 0.32.0-flashinfer-sm90-hybrid_on-k3-c64-solo

unsupported     16  GPU backends are judged on GPU archs
unsupported     16  cpu_attn is the CPU platform's backend

72 cells = 8 overflow + 32 unsupported + 32 pass
results in runs/1
exit 1: product trouble: fail, overflow, crash, timeout, oom, refused! or xpass
"""
    text = shown(small(), code=1, title="run 1", where="runs/1")
    assert text == expected


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_whole_matrix_fits_the_width_and_takes_no_time(width):
    rows = tuple(synthetic.known(synthetic.results()))
    started = time.perf_counter()
    text = shown(rows, width)
    assert time.perf_counter() - started < 2
    assert max(map(len, text.splitlines())) <= width
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert "3,780 cells = 54 refused + 1,080 unsupported + 2,214 pass + 432 xfail" in text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_cell_of_a_supported_row_is_one_glyph(width):
    rows = tuple(synthetic.results())
    glyphs = 0
    for block in heatmap.blocks(rows):
        lines = heatmap.lay_out(block, width)
        glyphs += sum(1 for line in lines for _, style in line if isinstance(style, Verdict))
    # 4 GPU backends on 6 archs and one CPU backend on one, for each of 3 loads
    assert glyphs == 25 * 36 * 3


def test_a_column_stands_under_its_own_heads():
    odd = cell(State.CRASH, axes={"hybrid": "off", "spec_k": 10, "chunk": 8192})
    rows = [
        cell(axes={"hybrid": h, "spec_k": k, "chunk": c}) for c in (64, 8192) for h in ("on", "off") for k in (3, 10)
    ]
    (block,) = heatmap.blocks([odd if row.id == odd.id else row for row in rows])
    *heads, row = [heatmap.as_text(line) for line in heatmap.lay_out(block, 80)][1:]
    at = row.index("C")
    assert heads[2][at:].startswith("10")
    assert heads[1][: at + 1].split()[-1].startswith("of")
    assert heads[0][: at + 1].split()[-1].startswith("c8192")


def test_groups_of_columns_that_do_not_fit_go_below():
    rows = tuple(synthetic.results())
    narrow = heatmap.lay_out(heatmap.blocks(rows)[0], 45)
    assert max(len(heatmap.as_text(line)) for line in narrow) <= 45
    assert sum("chunk" in heatmap.as_text(line) for line in narrow) == 3


def test_bad_glyphs_are_capitals_and_no_two_verdicts_share_one():
    assert set(heatmap.GLYPHS) == set(Verdict)
    assert len(set(heatmap.GLYPHS.values())) == len(Verdict)
    for verdict, glyph in heatmap.GLYPHS.items():
        assert (glyph.isupper() or glyph == "?") == (verdict.fault.value != "none"), verdict


def test_a_cell_that_was_not_selected_is_blank():
    rows = [cell(axes={"arch": "sm80", "spec_k": 0}), cell(axes={"arch": "sm90", "spec_k": 3})]
    (block,) = heatmap.blocks(rows)
    assert [row.marks for row in block.rows] == [(Verdict.PASS, None), (None, Verdict.PASS)]


def test_evidence_that_is_mixed_in_a_row_shows_as_both():
    rows = [cell(axes={"spec_k": 0}), cell(axes={"spec_k": 3}, evidence=Evidence.DEVICE)]
    text = shown(rows)
    assert "flashinfer sm80 de .." in text
    assert "1 result: device (on that GPU)." in text


def test_known_groups_come_after_the_unexpected_ones_with_their_link():
    rows = list(synthetic.known(small()))
    rows.append(cell(State.FAIL, axes={"vllm": "0.33.0"}))
    text = shown(rows, code=1)
    assert text.index("1 group unexpected") < text.index("3 groups known, and still so")
    known = text[text.index("known, and still so") :]
    assert "xfail: overflow raised in paged_kv_indptr" in known
    assert f"known     {ISSUE}\n" in known
    assert "message" not in known


def test_a_run_with_known_trouble_names_the_flag_that_shows_it_without():
    hint = "\nknown issues explain 8 cells: `runner --no-known` judges without them\n"
    assert hint in shown(list(synthetic.known(small())))
    assert "--no-known" not in shown(small(), code=1)


def test_an_exception_of_vllm_says_where_and_what_it_took_with_it():
    expected = """\
fail at flashinfer.py:812 · flashinfer · 2 cells · emulated
  where     every cell of the run
  case      test_0
  also      3 cases: test_1, test_2, test_3
  raised    AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in
            build: no room for 5 rows
  message   AssertionError: no room for 5 rows
"""
    cases = [failed(f"test_{n}") for n in range(4)]
    assert expected in shown([cell(State.FAIL, *cases), cell(State.FAIL, *cases, axes={"spec_k": 1})], code=1)


def test_a_known_issue_says_what_was_judged_besides_and_the_run_what_was_not():
    cases = [overflowed(INDPTR, cause=cause()), overflowed("test_a"), CaseResult(name="test_b", state=State.PASS)]
    text = shown([replace(cell(State.OVERFLOW, *cases), verdict=Verdict.XFAIL, known=ISSUE)])
    assert (
        f"""\
  case      {INDPTR}
  besides   1 case passed; 1 ended at the same overflow and judged nothing else:
            test_a
"""
        in text
    )
    assert "\n1 xfail: behind them 1 of 3 cases were not judged\n" in text


def test_a_refusal_that_nobody_expects_is_red_and_an_expected_one_says_why():
    row = cell(State.REFUSED, failed(state=State.REFUSED))
    bad = replace(row, verdict=Verdict.UNEXPECTED, reason="no kernel (unexpected: no entry names this reason)")
    good = cell(State.REFUSED, axes={"spec_k": 1}, reason="too many", expected="vLLM drafts at most 5 tokens")
    text = shown([bad, good], 100, code=1)
    assert "flashinfer sm80 e Rr" in text
    assert "r refused   R refused!" in text
    assert "refused! at flashinfer.py:812 · flashinfer · 1 cell · emulated" in text
    assert "  message   no kernel (unexpected: no entry names this reason)" in text
    assert "  raised    AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build" in text
    assert "refused          1  too many (expected: vLLM drafts at most 5 tokens)" in text
    assert terminal.STYLES[Verdict.UNEXPECTED] == "bold red"


def test_an_unexpected_pass_says_what_to_do():
    row = replace(cell(), verdict=Verdict.XPASS, known=ISSUE, reason="take the entry out")
    text = shown([row], code=1)
    assert "\nxpass · flashinfer · 1 cell" in text
    assert "take the entry out" in text


def test_a_repro_line_is_never_broken():
    row = cell(State.FAIL, repro=f"runner repro {'x' * 200}")
    assert f"repro     runner repro {'x' * 200}\n" in shown([row], 80)


def test_long_batches_are_shortened():
    found = replace(overflow(), batch=replace(overflow().batch, query_lens=(1,) * 255 + tuple(range(2, 30))))
    text = shown([cell(State.OVERFLOW, overflowed(INDPTR, found))], 160)
    assert "query_lens 255x 1, 2, 3, 4, 5, 6, 7, 8, … 21 more; seq_lens 320" in text


@pytest.mark.parametrize("width", [80, 160])
def test_hostile_text_is_shown_and_not_obeyed(width):
    case = CaseResult(
        name=HOSTILE, state=State.OVERFLOW, message=HOSTILE, overflow=(overflow(How.SILENT, buffer=HOSTILE),)
    )
    axes = {"backend": HOSTILE, "load": HOSTILE}
    rows = [
        cell(State.OVERFLOW, case, axes=axes, reason=HOSTILE, repro=HOSTILE, known=HOSTILE, verdict=Verdict.XFAIL),
        cell(State.OVERFLOW, case, axes=axes | {"spec_k": 3}, reason=HOSTILE, id=HOSTILE),
        cell(State.REFUSED, axes={"spec_k": 5}, reason=HOSTILE),
    ]
    text = shown(rows, width, title=HOSTILE, where=HOSTILE)
    bad = {char for char in text if char != "\n" and not char.isprintable()}
    assert not bad
    assert "\\x1b[2J" in text
    assert "[bold red]x[/bold red]" in text
    assert ":smile:" in text
    assert "\\u202e" in text


def test_hundreds_of_groups_are_counted_and_not_printed():
    rows = [cell(State.FAIL, CaseResult(name=f"test_{i}", state=State.FAIL), id=str(i)) for i in range(300)]
    text = shown(rows)
    assert "300 groups unexpected" in text
    assert "… and 280 groups more, see report.md" in text
    assert text.count("  repro ") == 20


def test_no_results_at_all_is_still_a_report():
    text = shown([], code=5)
    assert "0 cells = 0" in text
    assert text.endswith("exit 5: nothing selected\n")


def test_colour_goes_to_a_terminal_only(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    terminal.show(consoles.make(out), small(), exit_code=1)
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_none_is_wanted(monkeypatch, variable, value):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(variable, value)
    out = io.StringIO()
    out.isatty = lambda: True
    terminal.show(consoles.make(out), small(), exit_code=1)
    assert "\x1b[31m" not in out.getvalue()
    assert ";31m" not in out.getvalue()


def test_a_terminal_gets_colour(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    out = io.StringIO()
    out.isatty = lambda: True
    terminal.show(consoles.make(out), small(), exit_code=1)
    assert "31m" in out.getvalue()


def test_a_stream_of_ascii_gets_the_report_too():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal.show(consoles.make(stream), small(), exit_code=1)
    stream.flush()
    assert b"overflow raised in paged_kv_indptr" in raw.getvalue()
