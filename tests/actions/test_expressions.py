"""The harness's own expressions, by examples whose values follow from GitHub's documentation."""

import pytest

from tests.actions.expressions import Unknown, evaluate, fill, holds

CONTEXTS = {
    "github": {"event": {"label": {"name": "GPU"}}, "run_attempt": 2},
    "needs": {"plan": {"outputs": {"jobs": '{"include": [{"name": "sm90"}]}', "none": ""}, "result": "success"}},
    "inputs": {"a": "", "b": "x"},
}
FUNCTIONS = {"success": lambda: False, "always": lambda: True, "cancelled": lambda: False, "failure": lambda: True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ("github.event.label.name == 'gpu'", True),  # GitHub ignores case when it compares strings
        ("github.event.nothing.at.all", None),
        ("inputs.a || inputs.b", "x"),
        ("inputs.a && inputs.b", ""),
        ("!inputs.a", True),
        ("fromJSON(needs.plan.outputs.jobs).include[0].name", "sm90"),
        ("fromJSON(needs.plan.outputs.jobs).include[1]", None),
        ("fromJSON(needs.plan.outputs.jobs).include[0] != null", True),
        ("inputs.a != '' && fromJSON(inputs.a)", False),  # the right side is not looked at
        ("(inputs.a || 'y') == 'y'", True),
        ("github.run_attempt == 2", True),
    ],
)
def test_values(text: str, value: object) -> None:
    assert evaluate(text, CONTEXTS, FUNCTIONS) == value


@pytest.mark.parametrize(
    "text", ["secrets.x", "job.status", "nothing('a')", "inputs.b ==", "'a", "github 'x'",
             "format('{0}')"],
)  # fmt: skip
def test_what_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises(Unknown):
        evaluate(text, CONTEXTS, FUNCTIONS)


def test_filling() -> None:
    assert fill("run-${{ inputs.b }}-${{ github.run_attempt }}", CONTEXTS, FUNCTIONS) == "run-x-2"
    assert fill({"a": ["${{ fromJSON('[1]') }}"]}, CONTEXTS, FUNCTIONS) == {"a": [[1]]}


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (None, False),  # success() by default
        ("inputs.b == 'x'", False),  # and before every condition that asks for no status
        ("always()", True),
        ("always() && inputs.b == 'x'", True),
        ("${{ !cancelled() && inputs.a != '' }}", False),
        ("failure()", True),
    ],
)
def test_conditions(condition: str | None, value: bool) -> None:
    assert holds(condition, CONTEXTS, FUNCTIONS) is value
