"""Patches: what `git diff` and `diff -ru` write, applied to the letter or refused with the reason."""

import subprocess
from pathlib import Path

import pytest

from runner import patches
from runner.patches import BadPatch, apply, parse

BEFORE = {
    "vllm/a.py": "one\ntwo\nthree\nfour\n",
    "vllm/no_end.py": "first\nlast",
    "vllm/empty.py": "",
    "vllm/gone.py": "old\n",
    "vllm/moved.py": "".join(f"line {number}\n" for number in range(1, 31)),
    "tests/t.py": "t\n",
}
AFTER = {
    "vllm/a.py": "one\n2\nthree\nfour\nfive",
    "vllm/no_end.py": "first\nlast\nand more\n",
    "vllm/empty.py": "filled\n",
    "vllm/sub/moved_here.py": BEFORE["vllm/moved.py"].replace("line 3\n", "third\n").replace("line 28\n", "28\n28b\n"),
    "vllm/made.py": "fresh\n",
    "tests/t.py": "u\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git_diff(tmp_path: Path, *options: str) -> str:
    write(tmp_path / "a", BEFORE)
    write(tmp_path / "b", AFTER)
    command = ["git", "diff", "--no-index", *options, "a", "b"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    return text.replace("a/a/", "a/").replace("b/b/", "b/").replace("from a/", "from ").replace("to b/", "to ")


@pytest.mark.parametrize("options", [(), ("-U0",), ("-M20%",)])
def test_what_git_writes_gives_what_git_meant(tmp_path: Path, options: tuple[str, ...]) -> None:
    patch = parse(git_diff(tmp_path, *options))
    assert patch.left_out == ("tests/t.py",)
    expected: dict[str, str | None] = {name: text for name, text in AFTER.items() if name.startswith("vllm/")}
    assert apply(patch, BEFORE.get) == expected | {"vllm/gone.py": None, "vllm/moved.py": None}


ONE = "@@ -2,2 +2,2 @@\n two\n-three\n+3\n"


@pytest.mark.parametrize(
    "heads",
    [
        "--- a/vllm/a.py\n+++ b/vllm/a.py\n",
        "--- vllm/a.py\n+++ vllm/a.py\n",
        "--- vllm-0.32.0/vllm/a.py\t2026-01-01 10:00:00\n+++ mine/vllm/a.py\t2026-01-02 10:00:00\n",
        "--- vllm.orig/vllm/a.py\n+++ vllm/vllm/a.py\n",
    ],
)
def test_the_package_is_found_below_whatever_folder_a_diff_was_made_in(heads: str) -> None:
    assert apply(parse(heads + ONE), BEFORE.get) == {"vllm/a.py": "one\ntwo\n3\nfour\n"}


HEAD = "--- a/vllm/a.py\n+++ b/vllm/a.py\n"


def test_a_hunk_may_have_moved_and_what_is_nearest_is_taken() -> None:
    lines = [*"abc", "two", "three", *"defg", "two", "three", "h"]
    text = "".join(f"{line}\n" for line in lines)
    after = apply(parse(HEAD + ONE.replace("-2,2 +2,2", "-9,2 +9,2")), {"vllm/a.py": text}.get)["vllm/a.py"]
    assert after == text[::-1].replace("eerht", "3", 1)[::-1]


@pytest.mark.parametrize(
    ("hunk", "reason"),
    [
        ("@@ -2,2 +2,2 @@\n two\n-tree\n+3\n", "line 3 should be 'tree', and there is 'three'"),
        ("@@ -4,2 +4,1 @@\n four\n-five\n", "line 5 should be 'five', and the file has ended"),
        ("@@ -1,1 +1,1 @@\n-ONE\n+1\n", "line 1 should be 'ONE', and there is 'one'"),
        # as a patch whose first hunk took the lines that its second wants
        ("@@ -1,2 +1,1 @@\n-one\n-two\n+1\n@@ -2,1 +1,1 @@\n-two\n+2\n", "hunk 2 of vllm/a.py"),
    ],
)
def test_a_hunk_whose_lines_are_not_there_names_itself_and_the_line(hunk: str, reason: str) -> None:
    with pytest.raises(BadPatch) as caught:
        apply(parse(HEAD + hunk), BEFORE.get)
    assert reason in str(caught.value)
    assert "of vllm/a.py, @@ -" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--- a/vllm/b.py\n+++ b/vllm/b.py\n" + ONE, "vllm/b.py is not there"),
        ("--- /dev/null\n+++ b/vllm/a.py\n@@ -0,0 +1 @@\n+x\n", "vllm/a.py is there already"),
    ],
)
def test_a_file_that_is_not_there_or_should_not_be(text: str, reason: str) -> None:
    with pytest.raises(BadPatch, match=reason):
        apply(parse(text), BEFORE.get)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "b/../etc/passwd",
        "b/vllm/../../x.py",
        "../vllm/x.py",
        "b/vllm//x.py",
        "b/vllm/./x.py",
        "b/vllm\\..\\x",
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_a_path_that_leads_out_of_the_package_is_refused(path: str, side: int) -> None:
    heads = ["--- a/vllm/a.py\n", "+++ b/vllm/a.py\n"]
    heads[side] = heads[side][:4] + path + "\n"
    with pytest.raises(BadPatch, match="leads out of the package"):
        parse("".join(heads) + ONE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no file with a hunk"),
        ("# a page\n\nof text\n", "it has no file with a hunk"),
        ("--- a/tests/a.py\n+++ b/tests/a.py\n" + ONE, "all of it is outside, such as tests/a.py"),
        (HEAD + "@@ -2,2 +2,2 @@\n two\n", "is no unified diff: "),
        (
            "diff --git a/vllm/x.bin b/vllm/x.bin\nBinary files a/vllm/x.bin and b/vllm/x.bin differ\n",
            "is a binary file",
        ),
    ],
)
def test_what_is_no_patch_of_the_package_says_why(text: str, reason: str) -> None:
    with pytest.raises(BadPatch, match=reason):
        parse(text)


def test_only_a_newline_ends_a_line() -> None:
    """A form feed or a line separator inside a string of the source is no end of a line to diff."""
    source = {"vllm/a.py": "x = '\f\u2028'\ny = 1\n"}
    patch = HEAD + "@@ -1,2 +1,2 @@\n x = '\f\u2028'\n-y = 1\n+y = 2\n"
    assert apply(parse(patch), source.get) == {"vllm/a.py": "x = '\f\u2028'\ny = 2\n"}
    assert patches.PACKAGE == "vllm"
