"""statement.json: an in-toto Statement v1 with the test-result predicate, over the results and the images.

Its fields: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md, version 0.1.0.
"""

import re
from collections.abc import Iterator
from typing import Any

from runner import results
from runner.model import Verdict
from runner.signoff.inputs import Inputs
from runner.signoff.judge import Decision, Judged, Judgement

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
_IMAGE = re.compile(r"sha256:([0-9a-f]{64})")


def make(inputs: Inputs, judgement: Judgement) -> dict[str, Any]:
    """The statement as plain data.

    A test is a required cell, named by requirement and id. It has warned where it counts with a known issue, or where
    all that is missing of it is waived.
    """
    outcomes: dict[str, list[str]] = {"passed": [], "warned": [], "failed": []}
    for one in judgement.cells:
        outcomes[_outcome(one)].append(f"{one.requirement.name}: {one.cell.id}")
    request = inputs.request
    predicate: dict[str, Any] = {
        "result": "FAILED" if judgement.decision is Decision.NO_GO else "WARNED" if outcomes["warned"] else "PASSED",
        "configuration": list(_configuration(inputs, judgement)),
    }
    if request.url:
        predicate["url"] = request.url
    predicate |= {f"{outcome}Tests": names for outcome, names in outcomes.items()}
    return {
        "_type": STATEMENT,
        "subject": list(_subjects(inputs)),
        "predicateType": PREDICATE,
        "predicate": predicate,
    }


def _outcome(one: Judged) -> str:
    if one.open:
        return "failed"
    known = any(attempt.row.verdict in {Verdict.XFAIL, Verdict.FLAKY} for attempt in one.counting)
    return "warned" if one.gaps or known else "passed"


def _subjects(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """The results, and the images that the cells ran in."""
    for run in inputs.runs:
        yield {"name": f"inputs/{run.folder}/{results.NAME}", "digest": {"sha256": run.digest}}
    images = {row.environment.get("image_digest", "") for run in inputs.runs for row in run.rows.values()}
    for image in sorted(images):
        if found := _IMAGE.fullmatch(image):
            yield {"name": f"image {image}", "digest": {"sha256": found[1]}}


def _configuration(inputs: Inputs, judgement: Judgement) -> Iterator[dict[str, Any]]:
    """Every other input; the first, what was asked, also says what was decided."""
    request = inputs.request
    said = {"decision": judgement.decision.value, "vllm": request.vllm, "policy": request.policy, "at": _time(inputs)}
    subjects = {f"{run.folder}/{results.NAME}" for run in inputs.runs}
    for path, digest in sorted(inputs.digests.items(), key=lambda item: (item[0] != "request.json", item[0])):
        if path not in subjects:
            one: dict[str, Any] = {"name": f"inputs/{path}", "digest": {"sha256": digest}}
            yield one | ({"annotations": said} if path == "request.json" else {})


def _time(inputs: Inputs) -> str:
    return inputs.request.at.strftime("%Y-%m-%dT%H:%M:%SZ")
