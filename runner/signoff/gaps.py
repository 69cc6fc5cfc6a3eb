"""What may stand between a required cell and a green light, each under one word."""

from runner.model import Verdict

ABSENT = "absent"
EVIDENCE = "evidence"
STALE = "stale"
ENVIRONMENT = "environment"
RUNS = "runs"
REGRESSED = "regressed"

MEANING = {
    ABSENT: "no run has a result of it",
    EVIDENCE: "the results are not of the evidence that is asked for",
    STALE: "the results are too old",
    ENVIRONMENT: "the results are not of the environment that is asked for",
    RUNS: "too few runs have shown it",
    REGRESSED: "it passed in the run before, and is refused now",
}
"""Why a cell is not shown, but for a verdict that the policy does not accept, which is a gap of that name."""

NAMES = (*MEANING, *(verdict.value for verdict in Verdict if verdict is not Verdict.PASS))
"""What an approver may waive: the words above, and the verdicts."""
