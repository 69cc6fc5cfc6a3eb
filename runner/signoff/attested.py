"""What nothing else in a bundle, and nothing given from outside, can contradict: only a signature vouches for it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Fields that can be changed so that a bundle still holds, where it is made anew behind the change."""

    what: str
    fields: tuple[str, ...]
    """By file and by path, without the numbers of lists; of a mapping with any keys, `*`."""
    because: str


_ROW = "results.json"

KINDS = (
    Kind(
        what="when",
        fields=("request.json at", f"{_ROW} ended_at", f"{_ROW} duration_s", f"{_ROW} cases duration_s"),
        because="nobody else held the watch; a result is only refused where it is stale, or takes no time at all",
    ),
    Kind(
        what="where",
        fields=(
            "request.json runs",
            "request.json since",
            "request.json url",
            f"{_ROW} environment machine",
            f"{_ROW} environment image_digest",
            f"{_ROW} environment base_digest",
            f"{_ROW} environment gpu",
            f"{_ROW} environment driver",
            f"{_ROW} environment recipe_digest",
            f"{_ROW} environment hashes",
            f"{_ROW} environment cases_digest",
            "candidates.json path",
            "candidates.json why",
        ),
        because="a name is a name; what a policy wants to be the same, a change of one result makes stand out",
    ),
    Kind(
        what="what a case reported",
        fields=(
            f"{_ROW} cases",
            f"{_ROW} cases name",
            f"{_ROW} cases state",
            f"{_ROW} cases message",
            f"{_ROW} cases cause *",
            f"{_ROW} cases overflow *",
            f"{_ROW} resolved *",
            f"{_ROW} reruns",
        ),
        because="it is what everything else follows from: `runner repro CELL` shows it again",
    ),
    Kind(
        what="how a process ended",
        fields=(f"{_ROW} reason", f"{_ROW} state"),
        because="a death leaves no case behind that would say it: only of `crash`, `oom`, `timeout`, `missing`, "
        "`infra` and `not_run`, of which none is a pass",
    ),
    Kind(
        what="which cells were planned, and why one was skipped",
        fields=("plan.json skipped", "plan.json cells"),
        because="a cell that is in neither plan nor results was not asked for; a required one is `absent` then",
    ),
)
"""What `docs/signoff.md` shows, and what a test of random tamperings goes by."""


def table() -> str:
    """The kinds, as a table in Markdown."""
    rows = (f"| {kind.what} | {', '.join(f'`{field}`' for field in kind.fields)} | {kind.because} |" for kind in KINDS)
    return "\n".join(("| what | fields | why |", "| --- | --- | --- |", *rows))
