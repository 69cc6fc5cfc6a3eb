// Which axes make rows, which columns, and which a map of their own: a choice for each axis that says something.

const LANES = ["rows", "columns", "maps"];

function defaultLanes() {
  const telling = axes.map((axis, i) => i).filter((i) => axes[i].shows);
  const lanes = { rows: [], columns: [], maps: [] };
  for (const lane of ["rows", "columns"]) {
    lanes[lane] = data[lane].map((name) => axes.findIndex((axis) => axis.name === name)).filter((i) => telling.includes(i));
  }
  lanes.maps = telling.filter((i) => !lanes.rows.includes(i) && !lanes.columns.includes(i));
  return lanes;
}

// The lanes with one axis at the inner end of a lane.
function moved(lanes, axis, to) {
  const without = Object.fromEntries(LANES.map((lane) => [lane, lanes[lane].filter((each) => each !== axis)]));
  return { ...without, [to]: [...without[to], axis] };
}

// The lanes with one axis a place further out in its lane.
function outward(lanes, axis) {
  const changed = LANES.map((lane) => {
    const at = lanes[lane].indexOf(axis);
    const order = [...lanes[lane]];
    if (at > 0) [order[at - 1], order[at]] = [order[at], order[at - 1]];
    return [lane, order];
  });
  return Object.fromEntries(changed);
}

const swapped = (lanes) => ({ ...lanes, rows: lanes.columns, columns: lanes.rows });

function drawPivot(lanes, change) {
  const parts = LANES.map((lane) => make("span", { class: "lane" }, make("b", {}, lane),
    ...lanes[lane].map((axis, i) => drawAxis(lanes, lane, axis, i, change)),
    ...(lanes[lane].length ? [] : [make("em", {}, "none")])));
  const swap = make("button", { type: "button", id: "swap", title: "swap rows and columns" }, "⇄ swap");
  swap.addEventListener("click", () => change(swapped(lanes), "swap"));
  const back = make("button", { type: "button", id: "reset" }, "reset");
  back.addEventListener("click", () => change(defaultLanes(), "reset"));
  byId("pivot").replaceChildren(...parts, swap, back);
}

function drawAxis(lanes, lane, axis, position, change) {
  const name = axes[axis].name;
  const choice = make("select", { id: `lane-${axis}`, "aria-label": `${name}: rows, columns or maps` },
    ...LANES.map((each) => make("option", { value: each, selected: each === lane }, each)));
  choice.addEventListener("change", () => change(moved(lanes, axis, choice.value), choice.id));
  const out = make("button", { type: "button", id: `out-${axis}`, class: "out", "aria-label": `${name}: further out` }, "‹");
  out.disabled = position === 0;
  out.addEventListener("click", () => change(outward(lanes, axis), out.id));
  return make("span", { class: "axis-choice" }, out, make("span", {}, name), choice);
}
