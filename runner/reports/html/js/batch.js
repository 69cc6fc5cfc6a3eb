// An overflow drawn: each request's query cut at the chunk boundaries into rows, and the rows against the buffer's entries.

const WIDE = 420;
const LINE = 20;
const MOST_REQUESTS = 4;

function drawOverflow(cell, number) {
  const [buffer, required, allocated, how, batch] = data.overflows[number];
  const [requests, runs] = data.batches[batch];
  const title = `${data.texts[buffer]} needs ${figure(required)} and has ${figure(allocated)}`;
  const parts = [make("h4", {}, title, make("span", { class: "how" }, names.hows[how]))];
  const chunk = valueOn(cell, "chunk");
  const whole = runs.reduce((sum, run) => sum + run[2], 0) === requests;
  if (!whole || !isBatch(runs, chunk)) {
    parts.push(make("p", { class: "note" }, whole ? "This batch is none that a scheduler forms: it is not drawn."
      : `A batch of ${counted(requests, "request")}, of which only the first are here: it is not drawn.`));
    parts.push(drawPicture([stripOf(required, allocated, 4)], 52, title));
  } else {
    const rows = totalRows(runs, chunk);
    const words = sayBatch(runs, chunk, rows, required, allocated);
    parts.push(make("p", {}, words), drawBatch(runs, chunk, rows, required, allocated, `${title}. ${words}`));
  }
  parts.push(make("p", { class: "note" }, `query_lens ${sayRuns(runs, 0)}; seq_lens ${sayRuns(runs, 1)}`));
  return make("div", { class: "overflow" }, ...parts);
}

function sayBatch(runs, chunk, rows, required, allocated) {
  const tokens = runs.reduce((sum, [query, , times]) => sum + query * times, 0);
  const requests = runs.reduce((sum, run) => sum + run[2], 0);
  const cut = `${counted(requests, "request")} with ${counted(tokens, "query token")}, cut at every ${figure(chunk)} positions, `
    + `${requests === 1 ? "makes" : "make"} ${counted(rows, "row")}. `;
  return cut + {
    rows: `The buffer needs as many entries as there are rows, and has ${figure(allocated)}.`,
    ends: `The buffer needs an entry for each row and one for the end: ${figure(required)}, and has ${figure(allocated)}.`,
    other: `The buffer counts something else than these rows: it needs ${figure(required)} and has ${figure(allocated)}.`,
  }[relation(rows, required)];
}

// What the entries of the buffer are to the rows, by their number alone.
const relation = (rows, required) => (required === rows ? "rows" : required === rows + 1 ? "ends" : "other");

const sayRuns = (runs, which) => {
  const said = runs.slice(0, 8).map((run) => (run[2] > 1 ? `${run[2]}× ${run[which]}` : `${run[which]}`)).join(", ");
  return runs.length > 8 ? `${said}, …` : said;
};

function drawBatch(runs, chunk, rows, required, allocated, label) {
  const parts = [];
  let at = 22;
  parts.push(caption("requests: query tokens, the keys before them, chunk boundaries", at - 6));
  for (const run of runs.slice(0, MOST_REQUESTS)) {
    parts.push(drawRequest(run, chunk, at));
    at += 46;
  }
  if (runs.length > MOST_REQUESTS) parts.push(caption(`… and ${counted(runs.length - MOST_REQUESTS, "more run")} of like requests`, (at += 12) - 4));
  at += 22;
  const kind = relation(rows, required);
  parts.push(caption(kind === "other" ? "rows: one for each chunk that a query touches" : "rows, and the entry of the buffer for each", at - 6));
  const lines = kind === "other" ? rows : required;
  for (const line of linesToShow(lines, kind === "other" ? lines : allocated)) {
    parts.push(line < 0 ? caption("⋮", at + 12, 30) : drawLine(runs, chunk, line, { rows, allocated, kind, at }));
    at += line < 0 ? 16 : LINE;
  }
  parts.push(stripOf(required, allocated, at + 10));
  return drawPicture(parts, at + 58, label);
}

// The first lines, those around the last entry that is there, and the last ones; -1 stands for those left out.
function linesToShow(lines, edge) {
  const wanted = new Set();
  for (const [from, to] of [[0, 4], [edge - 3, edge + 4], [lines - 2, lines]]) {
    for (let i = Math.max(0, from); i < Math.min(lines, to); i += 1) wanted.add(i);
  }
  const sorted = [...wanted].sort((a, b) => a - b);
  return sorted.flatMap((line, i) => (i > 0 && line > sorted[i - 1] + 1 ? [-1, line] : [line]));
}

function drawRequest([query, seq, times], chunk, at) {
  const first = Math.floor((seq - query) / chunk);
  const last = Math.floor((seq - 1) / chunk);
  const shown = last - first + 1;
  const x = (position) => 4 + (WIDE - 8) * ((position - first * chunk) / (shown * chunk));
  const parts = [
    draw("rect", { class: "key", x: x(first * chunk), y: at + 2, width: x(seq - query) - x(first * chunk), height: 10 }),
    draw("rect", { class: "query", x: x(seq - query), y: at + 2, width: Math.max(2, x(seq) - x(seq - query)), height: 10 }),
  ];
  const every = Math.ceil(shown / 8);
  for (let i = 0; i <= shown; i += every) {
    const position = (first + i) * chunk;
    const anchor = i === 0 ? "start" : i + every > shown ? "end" : "middle";
    parts.push(draw("line", { class: "cut", x1: x(position), x2: x(position), y1: at, y2: at + 15 }),
      draw("text", { x: x(position), y: at + 25, "text-anchor": anchor }, figure(position)));
  }
  const what = `${times > 1 ? `${figure(times)}× ` : ""}${counted(query, "token")} of ${figure(seq)}`;
  parts.push(draw("text", { class: "strong", x: WIDE / 2, y: at + 38, "text-anchor": "middle" }, what));
  return draw("g", {}, ...parts);
}

// A row: the part of its chunk that is read and asked; beside it the entry, if there is one.
function drawLine(runs, chunk, line, { rows, allocated, kind, at }) {
  const row = line < rows ? rowAt(runs, chunk, line) : null;
  const missing = kind !== "other" && line >= allocated;
  const parts = [];
  if (row) {
    const x = (position) => 92 + 200 * (position / chunk);
    parts.push(draw("text", { x: 4, y: at + 12 }, `request ${figure(row.request)}`),
      draw("rect", { class: "chunk", x: x(0), y: at + 2, width: 200, height: 12 }),
      draw("rect", { class: "key", x: x(0), y: at + 2, width: x(row.from) - x(0), height: 12 }),
      draw("rect", { class: missing ? "query lost" : "query", x: Math.min(x(row.from), x(chunk) - 2), y: at + 2, width: Math.max(2, x(row.to) - x(row.from)), height: 12 }));
  } else parts.push(draw("text", { x: 92, y: at + 12 }, "the end"));
  if (kind !== "other") {
    parts.push(draw("rect", { class: missing ? "entry none" : "entry", x: 304, y: at + 1, width: 46, height: 15 }),
      draw("text", { x: 327, y: at + 12, "text-anchor": "middle" }, `${missing ? "✕ " : ""}${figure(line)}`));
    if (missing) parts.push(draw("text", { class: "bad", x: 356, y: at + 12 }, "no entry"));
  }
  return draw("g", {}, ...parts);
}

function stripOf(required, allocated, at) {
  const most = Math.max(required, allocated, 1);
  const x = (number) => 4 + (WIDE - 8) * (number / most);
  const parts = [
    draw("rect", { class: "has", x: x(0), y: at, width: x(Math.min(allocated, most)) - x(0), height: 12 }),
    draw("rect", { class: "lost", x: x(allocated), y: at, width: Math.max(0, x(required) - x(allocated)), height: 12 }),
    draw("line", { class: "edge", x1: x(allocated), x2: x(allocated), y1: at - 4, y2: at + 16 }),
    draw("text", { x: 4, y: at + 27 }, `allocated ${figure(allocated)}`),
    draw("text", { class: "bad", x: WIDE - 4, y: at + 27, "text-anchor": "end" },
      required > allocated ? `required ${figure(required)}: ${figure(required - allocated)} short` : `required ${figure(required)}`),
  ];
  return draw("g", { class: "strip" }, ...parts);
}

const caption = (text, y, x = 4) => draw("text", { class: "caption", x, y }, text);

function drawPicture(parts, high, label) {
  return draw("svg", { class: "batch", viewBox: `0 0 ${WIDE} ${high}`, role: "img", "aria-label": label }, ...parts);
}
