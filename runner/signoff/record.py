"""signoff.json: the decision for programs, with every required cell."""

from typing import Any

from runner.signoff.inputs import Inputs
from runner.signoff.judge import Gap, Judged, Judgement
from runner.signoff.policy import Waiver


def make(inputs: Inputs, judgement: Judgement) -> dict[str, Any]:
    """The decision as plain data."""
    request = inputs.request
    return {
        "decision": judgement.decision.value,
        "vllm": request.vllm,
        "policy": request.policy,
        "at": request.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "url": request.url,
        "attnmatrix": request.attnmatrix,
        "runs": [{"id": run.id, "results_sha256": run.digest} for run in inputs.runs],
        "since": request.since,
        "required": len(judgement.cells),
        "shown": sum(not one.gaps for one in judgement.cells),
        "waived": sum(bool(one.gaps) and not one.open for one in judgement.cells),
        "missing": sum(bool(one.open) for one in judgement.cells),
        "requirements": [
            {
                "name": asked.name,
                "because": asked.because,
                "filters": [*asked.tier_filters, *asked.filters],
                "tier": asked.tier,
                "evidence": list(asked.evidence),
                "accept": list(asked.accept),
                "refusals": list(asked.refusals),
                "max_age_days": asked.max_age_days,
                "green_runs": asked.green_runs,
                "required": len(asked.cells),
                "excluded": asked.excluded,
            }
            for asked in inputs.policy.requirements
        ],
        "waivers": [
            _waiver(one.waiver) | {"covers": one.covers, "refused": list(one.refused)} for one in judgement.waivers
        ],
        "cells": [_cell(one) for one in judgement.cells],
    }


def _cell(one: Judged) -> dict[str, Any]:
    return {
        "requirement": one.requirement.name,
        "id": one.cell.id,
        "shown": not one.gaps,
        "evidence": list(one.evidence),
        "results": [
            {
                "run": attempt.run,
                "verdict": attempt.row.verdict,
                "evidence": attempt.row.evidence,
                "ended_at": attempt.row.ended_at,
                "counts": not attempt.gap,
                "why_not": attempt.why,
            }
            for attempt in one.attempts
        ],
        "gaps": [_gap(gap) for gap in one.gaps],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "gap": gap.name,
        "detail": gap.detail,
        "issue": gap.issue,
        "waived_by": gap.waiver.who if gap.waiver else "",
    }


def _waiver(waiver: Waiver) -> dict[str, Any]:
    return {
        "cells": [one.text for one in waiver.area.filters],
        "what": list(waiver.what),
        "who": waiver.who,
        "until": waiver.until.isoformat(),
        "because": waiver.because,
        "issue": waiver.issue,
    }
