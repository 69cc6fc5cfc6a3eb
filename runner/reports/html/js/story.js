// The story of one cell: what it is, what every case said, what overflowed, how to see it again.

const story = byId("story");
let told = -1;

function tell(cell) {
  told = cell;
  byId("story-title").textContent = idOf(cell);
  byId("story-body").replaceChildren(...storyOf(cell));
  story.hidden = false;
  story.scrollTop = 0;
}

function storyOf(cell) {
  const bad = data.faults[get(cell, "verdict")] !== "none";
  const verdict = verdictOf(cell);
  const badge = make("span", { class: `badge v-${verdict}` }, `${data.glyphs[get(cell, "verdict")]} ${verdict}`);
  const parts = [make("p", { class: "badges" }, badge, make("span", { class: "badge evidence" }, sayEvidence(cell)),
    make("span", { class: "note" }, `state ${stateOf(cell)}${bad ? ", not expected" : ""}`))];
  const reason = textOf(cell, get(cell, "reason"));
  const overflows = get(cell, "overflow");
  if (reason) parts.push(heading("Reason"), make("pre", {}, reason));
  const expected = textOf(cell, get(cell, "expected"));
  if (expected) parts.push(heading("Expected"), make("p", {}, expected));
  if (overflows.length) parts.push(heading("Overflow"), ...overflows.map((each) => drawOverflow(cell, each)));
  const known = textOf(cell, get(cell, "known"));
  if (known) parts.push(heading("Known issue"), linked(known), make("p", { class: "behind" }, textOf(cell, get(cell, "behind"))));
  const repro = textOf(cell, get(cell, "repro"));
  if (repro) parts.push(heading("See it again"), copyable(repro));
  const cases = data.stories[get(cell, "story")];
  if (cases.length) parts.push(heading(`${counted(cases.length, "case")}`), casesOf(cell, cases));
  parts.push(heading("Axes"), facts(axes.map((axis, i) => [axis.name, String(axis.values[get(cell, "axes")[i]])])));
  const resolved = factsOf(cell, "resolved");
  if (resolved.length) parts.push(heading("What vLLM resolved"), facts(resolved));
  parts.push(heading("Obtained"), facts([...obtained(cell), ...factsOf(cell, "environment")]));
  return parts;
}

const heading = (text) => make("h3", {}, text);
const factsOf = (cell, name) => data.facts[get(cell, name)]
  .map(([key, value]) => [textOf(cell, key), textOf(cell, value)]).filter(([, value]) => value !== "");

function obtained(cell) {
  const reruns = get(cell, "reruns").map((state) => names.states[state]).join(", ");
  const found = [["evidence", sayEvidence(cell)], ["took", `${figure(get(cell, "ms"))} ms`],
    ["ended", textOf(cell, get(cell, "ended"))], ["reruns", reruns]];
  return found.filter(([, value]) => value);
}

function facts(pairs) {
  const entries = pairs.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)]);
  return make("dl", { class: "facts" }, ...entries);
}

// What is bad first, and open; a case that held is a line. What ended at another one's trouble stands behind it, closed.
function casesOf(cell, cases) {
  const times = get(cell, "times");
  const order = cases.map((found, i) => [found, times[i]]).sort(([a], [b]) => a[1] - b[1] || a[5] - b[5]);
  return make("div", { class: "cases" }, ...order.map(([[name, state, message, , from, after], ms]) => {
    const words = names.states[state];
    const badge = make("span", { class: `badge v-${words}` }, words);
    const note = make("span", { class: "note" }, `${after ? "ended at the same, judged nothing else · " : ""}${figure(ms)} ms`);
    const head = [badge, make("span", { class: "name" }, textOf(cell, name)), note];
    const [text, raised] = [textOf(cell, message), textOf(cell, from)];
    if (!text && !raised) return make("p", { class: "case" }, ...head);
    const said = [...(raised ? [make("p", { class: "raised" }, `raised ${raised}`)] : []), ...(text ? [make("pre", {}, text)] : [])];
    const summary = make("summary", {}, ...head);
    return make("details", { class: "case", open: words !== "pass" && !after }, summary, ...said);
  }));
}

// Words that are nothing but a web address are links.
function linked(text) {
  const isAddress = (word) => /^https?:\/\/[\w.:-]+(\/[\w./~%?=&#+-]*)?$/.test(word);
  const word = (each) => (isAddress(each) ? make("a", { href: each, rel: "noopener noreferrer" }, each) : each);
  return make("p", {}, ...text.split(/\s+/).flatMap((each) => [word(each), " "]));
}

function copyable(text) {
  const shown = make("code", {}, text);
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text, shown)) ? "Copied" : "Select and copy it";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return make("p", { class: "repro" }, shown, button);
}

// A page from a file may not have the clipboard: then the text is selected at least.
async function copied(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}
