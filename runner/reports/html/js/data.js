// The rows, unpacked as far as the map needs them; runner/reports/html/packing.py says what is where.

const data = JSON.parse(byId("data").textContent);
const { axes, names } = data;
const cells = data.cells;
const FIELD = { id: 0, axes: 1, verdict: 2, state: 3, evidence: 4, story: 5, times: 6, overflow: 7, reason: 8, repro: 9,
  known: 10, environment: 11, resolved: 12, ms: 13, reruns: 14, ended: 15, expected: 16,
  behind: 17 };

const get = (cell, name) => cells[cell][FIELD[name]];
const idOf = (cell) => get(cell, "id");
const verdictOf = (cell) => names.verdicts[get(cell, "verdict")];
const stateOf = (cell) => names.states[get(cell, "state")];
const evidenceOf = (cell) => names.evidences[get(cell, "evidence")] ?? "";

function textOf(cell, number) {
  const text = data.texts[number];
  return typeof text === "string" ? text : text[0] + idOf(cell) + text[1];
}

function valueOn(cell, name) {
  const at = axes.findIndex((axis) => axis.name === name);
  return at < 0 ? undefined : axes[at].values[get(cell, "axes")[at]];
}

function sayVerdict(cell) {
  const [verdict, state] = [verdictOf(cell), stateOf(cell)];
  return verdict === state ? verdict : `${verdict} (${state})`;
}

const sayEvidence = (cell) => evidenceOf(cell) || "no evidence";
