// What is chosen (filter, facets, pivot, theme) and what it does; one listener of each kind for all cells.

const box = byId("filter");
const none = { verdict: "", group: -1, buffer: -1 };
let facets = { ...none };
let lanes = defaultLanes();
let everything = false;
let filters = []; // the last ones that could be read

function redraw() {
  const left = drawMaps(lanes, everything);
  byId("left-out").hidden = !left && !everything;
  byId("left-out").replaceChildren(
    everything ? "" : `${counted(left, "cell")} of rows that a rule excludes as a whole are left out. `,
    make("button", { type: "button", id: "everything" }, everything ? "Leave out what a rule excludes" : "Show them"));
  current = current >= 0 && places[current] ? current : -1;
  apply();
  setCurrent(current);
}

function apply() {
  const passes = passing();
  showOnly(passes);
  keepReachable();
  sayCount(passes);
}

function passing() {
  const lists = filters.map((filter) => [allowedValues(filter, axes), filter.globs]);
  const inside = [data.groups[facets.group], data.buffers[facets.buffer]].filter((each) => each).map((each) => new Set(each));
  return cells.map((cell, number) =>
    lists.every(([allowed, globs]) => cell[FIELD.axes].every((value, axis) => allowed[axis][value])
      && (!globs.length || globs.some((glob) => glob.test(cell[FIELD.id]))))
    && (!facets.verdict || verdictOf(number) === facets.verdict)
    && inside.every((each) => each.has(number)));
}

function sayCount(passes) {
  const counts = new Map();
  passes.forEach((passed, cell) => { if (passed) counts.set(verdictOf(cell), (counts.get(verdictOf(cell)) ?? 0) + 1); });
  const found = passes.filter((passed) => passed).length;
  const sum = [...counts].map(([verdict, number]) => `${figure(number)} ${verdict}`).join(" + ");
  const narrowed = filters.length || facets.verdict || facets.group >= 0 || facets.buffer >= 0;
  byId("count").textContent = narrowed && found ? `${figure(found)} of ${counted(cells.length, "cell")}: ${sum}`
    : narrowed ? `none of ${counted(cells.length, "cell")}` : counted(cells.length, "cell");
  byId("clear").hidden = !box.value && !narrowed;
}

function readFilter() {
  const error = byId("filter-error");
  try {
    filters = splitFilters(box.value).map((text) => parseFilter(text, axes, data.archs));
    error.hidden = true;
    box.removeAttribute("aria-invalid");
  } catch (trouble) {
    if (!(trouble instanceof FilterError)) throw trouble;
    error.textContent = `${trouble.message}. Shown is what was asked for before.`;
    error.hidden = false;
    box.setAttribute("aria-invalid", "true");
  }
  apply();
  keepInAddress();
}

function choose(changed) {
  facets = { ...facets, ...changed };
  for (const button of document.querySelectorAll("[data-verdict], [data-group], [data-buffer]")) {
    const { verdict, group, buffer } = button.dataset;
    const pressed = (verdict && verdict === facets.verdict) || (group && Number(group) === facets.group)
      || (buffer && Number(buffer) === facets.buffer);
    button.setAttribute("aria-pressed", String(Boolean(pressed)));
  }
  const chips = [];
  if (facets.verdict) chips.push(chip(`verdict ${facets.verdict}`, { verdict: "" }));
  if (facets.group >= 0) chips.push(chip(`group ${facets.group + 1}`, { group: -1 }));
  if (facets.buffer >= 0) chips.push(chip(`buffer ${facets.buffer + 1}`, { buffer: -1 }));
  byId("chips").replaceChildren(...chips);
  apply();
}

function chip(text, without) {
  const button = make("button", { type: "button", class: "chip", "aria-label": `${text}: remove` }, `${text} ✕`);
  button.addEventListener("click", () => { choose(without); box.focus(); });
  return button;
}

function clear() {
  box.value = "";
  choose(none);
  readFilter();
}

function open(cell) {
  tell(cell);
  byId("work").classList.add("open");
  maps.querySelector(".told")?.classList.remove("told");
  places[cell]?.classList.add("told");
  hideTip();
  keepInAddress();
}

function close() {
  if (story.hidden) return;
  story.hidden = true;
  byId("work").classList.remove("open");
  maps.querySelector(".told")?.classList.remove("told");
  if (shown(told)) goTo(told);
  told = -1;
  keepInAddress();
}

// The address says what is looked at, so that it can be sent to someone.
function keepInAddress() {
  const kept = new URLSearchParams();
  if (box.value) kept.set("filter", box.value);
  if (told >= 0) kept.set("cell", idOf(told));
  history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
}

function fromAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  box.value = kept.get("filter") ?? "";
  readFilter();
  const cell = cells.findIndex((each) => each[FIELD.id] === kept.get("cell"));
  if (cell < 0) return;
  setCurrent(cell);
  open(cell);
}

function onKey(event) {
  const cell = cellOf(event.target);
  if (byId("help").open) return;
  if (event.key === "Escape") {
    if (event.target === box && box.value) clear();
    else close();
    hideTip();
    return;
  }
  if (cell >= 0) onCellKey(event, cell);
  else if (event.target === document.body && event.key.startsWith("Arrow") && places[current]) {
    event.preventDefault();
    goTo(current);
  }
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  const does = { "/": () => { box.focus(); box.select(); }, "?": () => byId("help").showModal(), d: changeTheme }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}

function onCellKey(event, cell) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    open(cell);
    return;
  }
  const next = after(cell, event.key, event.ctrlKey);
  if (!/^(Arrow|Home|End)/.test(event.key)) return;
  event.preventDefault();
  if (next < 0) return;
  goTo(next);
  if (told >= 0) open(next);
}

function onPick(event) {
  const button = event.target.closest("[data-verdict], [data-group], [data-buffer]");
  if (!button) return;
  const pressed = button.getAttribute("aria-pressed") === "true";
  const { verdict, group, buffer } = button.dataset;
  if (verdict !== undefined) choose({ verdict: pressed ? "" : verdict });
  if (group !== undefined) choose({ group: pressed ? -1 : Number(group), buffer: -1 });
  if (buffer !== undefined) choose({ buffer: pressed ? -1 : Number(buffer), group: -1 });
  if (verdict === undefined && !pressed) byId("work").scrollIntoView({ block: "start" });
}

function changeLanes(changed, focus) {
  lanes = changed;
  drawPivot(lanes, changeLanes);
  redraw();
  byId(focus)?.focus();
}

box.addEventListener("input", readFilter);
byId("clear").addEventListener("click", () => { clear(); box.focus(); });
byId("close").addEventListener("click", close);
byId("theme").addEventListener("click", changeTheme);
byId("help-button").addEventListener("click", () => byId("help").showModal());
byId("left-out").addEventListener("click", (event) => {
  if (event.target.id !== "everything") return;
  everything = !everything;
  redraw();
  byId("everything")?.focus();
});
document.addEventListener("click", onPick);
document.addEventListener("keydown", onKey);
maps.addEventListener("click", (event) => {
  const cell = cellOf(event.target);
  if (cell < 0) return;
  goTo(cell);
  open(cell);
});
maps.addEventListener("mouseover", (event) => { const cell = cellOf(event.target); if (cell >= 0) showTip(cell); else hideTip(); });
maps.addEventListener("mouseleave", hideTip);
maps.addEventListener("focusin", (event) => { const cell = cellOf(event.target); if (cell >= 0 && event.target.matches(":focus-visible") && told < 0) showTip(cell); });
maps.addEventListener("focusout", hideTip);
addEventListener("scroll", hideTip, { passive: true });
addEventListener("hashchange", fromAddress);

firstTheme();
drawPivot(lanes, changeLanes);
redraw();
fromAddress();
