"""Which era serves a release, by the release's own number; the table is docs/releases.md's."""

import importlib.util
from pathlib import Path

import pytest

from cases import releases

ERAS = {
    "era_0_10_0": ("0.10.0", "0.10.0.post2"),
    "era_0_10_1": ("0.10.1", "0.10.1.1.post2", "0.10.2"),
    "era_0_11": ("0.11.0", "0.11.2.post2", "0.12.0", "0.13.0", "0.13.1rc2"),
    "era_0_14": ("0.14.0", "0.14.1+cpu", "0.20.2", "0.28.0", "0.28.1rc1.dev199+g1234abc"),
    "era_0_29": ("0.29.0", "0.32.0+cpu", "0.33.0", "0.34.0", "1.0.0"),
}


@pytest.mark.parametrize(("era", "version"), [(era, version) for era, versions in ERAS.items() for version in versions])
def test_era_of_a_release(era: str, version: str) -> None:
    assert releases.era_of(version) == era


def test_each_era_has_its_file_and_each_file_its_era() -> None:
    folder = Path(releases.__file__).parent / "vllm_api"
    assert {path.stem for path in folder.glob("era_*.py")} == {name for _, name in releases.ERAS} == set(ERAS)


@pytest.mark.parametrize("version", ["0.9.2", "0.8.5.post1", "0.1.dev1+g0000000"])
def test_an_older_release_is_unknown(version: str) -> None:
    with pytest.raises(
        releases.UnknownRelease, match=rf"^vLLM {version.replace('+', '.')} is older than .* 0\.10\.0 to"
    ):
        releases.era_of(version)


def test_what_is_no_version_is_unknown() -> None:
    with pytest.raises(releases.UnknownRelease, match="'nightly' is no version of vLLM"):
        releases.era_of("nightly")


@pytest.mark.parametrize(
    ("version", "about"),
    [("0.34.0", "is newer than the releases that the cases serve, 0.10.0 to 0.33.0"), ("0.32.1", "cannot be driven")],
)
def test_what_is_missing_is_said_with_the_release_and_the_era(version: str, about: str) -> None:
    said = str(releases.unknown(version, ImportError("cannot import name 'AttentionGroup'")))
    assert said.startswith(f"vLLM {version} {about}")
    assert said.endswith("era_0_29 of cases/vllm_api met ImportError: cannot import name 'AttentionGroup'")


def test_the_choice_needs_no_vllm() -> None:
    assert importlib.util.find_spec("vllm") is None, "this test stands in for a machine without vLLM"
