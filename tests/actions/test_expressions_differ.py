"""Our evaluator against GitHub's own, on expressions that nobody chose: no difference in value, kind or refusal."""

import random
from typing import Any

import pytest

from tests.actions import github_own
from tests.actions.expressions import Unknown, evaluate

COUNT = 6_000
CONTEXTS: dict[str, Any] = {
    "github": {
        "event": {
            "label": {"name": "GPU"},
            "number": 7,
            "draft": False,
            "Labels": [{"name": "gpu"}, {"name": "x"}, {}],
        },
        "run_attempt": 2,
        "sha": "abc",
        "ref": "",
    },
    "inputs": {"a": "", "b": "x", "n": 1.5, "zero": 0, "yes": True, "no": False, "nothing": None, "digits": "0x10"},
    "needs": {
        "plan": {"outputs": {"jobs": '{"include": [{"name": "sm90"}], "n": 3}', "none": ""}, "result": "success"}
    },
    "matrix": {"list": [1, "two", None, True, [1, 2], {"k": "v"}], "empty": [], "none": {}},
}
NAMES = [
    "event",
    "label",
    "name",
    "Labels",
    "labels",
    "a",
    "B",
    "n",
    "zero",
    "outputs",
    "jobs",
    "list",
    "k",
    "plan",
    "x",
]
LITERALS = ["1", "0", "-1", "2.5", "0x1F", "1e3", "+3", ".5", "NaN", "Infinity", "true", "false", "null", "''", "'x'",
            "'GPU'", "'it''s'", "' 7 '", "'0'", "'{0}-{1}'", "'{{0}}'", "'abc'",
            "'[1, \"two\"]'", "'{\"a\": 1}'"]  # fmt: skip
INDEXES = ["0", "1", "-1", "1.7", "'name'", "'0'", "true", "null"]
BINARY = ["==", "!=", "<", "<=", ">", ">=", "&&", "||"]
CALLS = {"contains": 2, "startsWith": 2, "endsWith": 2, "format": 3, "join": 2, "toJSON": 1, "fromJSON": 1}


def drawn(draw: random.Random, depth: int) -> str:
    """An expression; most are right, a few are not."""
    kind = draw.choices(["literal", "context", "binary", "not", "call", "group"], [4, 6, 6, 1, 3, 1])[0]
    if depth == 0 and kind not in {"literal", "context"}:
        kind = draw.choice(["literal", "context"])
    match kind:
        case "literal":
            return draw.choice(LITERALS)
        case "context":
            return draw.choice([*CONTEXTS, "GitHub"]) + "".join(index(draw, depth) for _ in range(draw.randrange(4)))
        case "binary":
            return f"{drawn(draw, depth - 1)} {draw.choice(BINARY)} {drawn(draw, depth - 1)}"
        case "not":
            return f"!{drawn(draw, depth - 1)}"
        case "call":
            name, most = draw.choice([*CALLS.items()])
            given = ", ".join(
                drawn(draw, depth - 1) for _ in range(max(1, most - (name == "join" and draw.random() < 0.3)))
            )
            return f"{name}({given})" + (index(draw, depth) if draw.random() < 0.3 else "")
    return f"({drawn(draw, depth - 1)})" + (index(draw, depth) if draw.random() < 0.3 else "")


def index(draw: random.Random, depth: int) -> str:
    match draw.randrange(5):
        case 0:
            return f"[{draw.choice(INDEXES)}]"
        case 1:
            return draw.choice([".*", "[*]"])
        case 2 if depth:
            return f"[{drawn(draw, depth - 1)}]"
    return f".{draw.choice(NAMES)}"


def ours(text: str) -> Any:
    try:
        return github_own.plain(evaluate(text, CONTEXTS, {}))
    except Unknown:
        return ["error"]


@pytest.mark.timeout(400)
def test_no_expression_means_something_else_to_github() -> None:
    draw = random.Random(20261201)
    texts = list(dict.fromkeys(drawn(draw, 3) for _ in range(COUNT)))
    answers = github_own.run(github_own.packages(), "evaluate.mjs", [[text, CONTEXTS] for text in texts])
    theirs = [github_own.as_ours(answer) for answer in answers]
    differing = [
        (text, mine, other) for text, other in zip(texts, theirs, strict=True) if (mine := ours(text)) != other
    ]
    assert differing == [], f"{len(differing)} of {len(texts)}, the first: {differing[:11]}"
    assert sum(other == ["error"] for other in theirs) < len(texts) / 3, "most expressions must have a value"
