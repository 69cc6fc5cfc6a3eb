// The heat map: one table for each combination of the axes that are neither rows nor columns, one td for each cell.

const LETTER = 8; // pixels
const maps = byId("maps");
let places = []; // for each cell its td, or undefined where its row is left out
let rowsDrawn = []; // {row, cells}: a tr and the cells in it
let blocksDrawn = []; // {block, rows, columns, heads}: a figure, its rowsDrawn, the cols of its cells, the pixels before them
let columnOf = []; // for each cell the number of its column

// `lanes`: {rows, columns, maps}, lists of axis numbers. Rows of nothing but unsupported cells are left out, unless asked for.
function drawMaps(lanes, everything) {
  places = new Array(cells.length);
  rowsDrawn = [];
  blocksDrawn = [];
  const columns = combinations(lanes.columns);
  const blocks = new Map();
  const column = new Map(columns.map((key, i) => [key.join(), i]));
  columnOf = cells.map((_, cell) => column.get(keyOf(cell, lanes.columns)));
  cells.forEach((_, cell) => {
    const block = entry(blocks, keyOf(cell, lanes.maps), () => new Map());
    entry(block, keyOf(cell, lanes.rows), () => [])[columnOf[cell]] = cell;
  });
  const drawn = document.createDocumentFragment();
  for (const key of combinations(lanes.maps)) {
    const rows = blocks.get(key.join());
    const shown = combinations(lanes.rows).filter((row) => rows?.has(row.join()) && (everything || judged(rows.get(row.join()))));
    if (shown.length) drawn.append(drawBlock(key, shown.map((row) => [row, rows.get(row.join())]), columns, lanes));
  }
  maps.replaceChildren(drawn);
  return cells.length - places.filter((place) => place).length;
}

const keyOf = (cell, lane) => lane.map((axis) => get(cell, "axes")[axis]).join();
const judged = (row) => row.some((cell) => verdictOf(cell) !== "unsupported");

function entry(map, key, fresh) {
  if (!map.has(key)) map.set(key, fresh());
  return map.get(key);
}

// The combinations of values that occur, in the order of the axes.
function combinations(lane) {
  const found = new Map(cells.map((_, cell) => [keyOf(cell, lane), lane.map((axis) => get(cell, "axes")[axis])]));
  return [...found.values()].sort((a, b) => {
    const at = a.findIndex((value, i) => value !== b[i]);
    return at < 0 ? 0 : a[at] - b[at];
  });
}

const said = (axis, value) => String(axes[axis].values[value]);
const shortName = (axis) => (axes[axis].name === "spec_k" ? "k" : axes[axis].name);

function drawBlock(key, rows, columns, lanes) {
  const title = key.map((value, i) => `${shortName(lanes.maps[i])} ${said(lanes.maps[i], value)}`).join(", ") || "all cells";
  const heads = Math.max(1, lanes.rows.length);
  const table = make("table", { class: "map", role: "grid", "aria-label": `heat map, ${title}` }, drawHead(columns, lanes, heads));
  const laidOut = layOut(table, rows, columns, lanes);
  const body = table.appendChild(document.createElement("tbody"));
  const block = { block: make("figure", {}, make("figcaption", {}, title), table), rows: [], ...laidOut };
  for (const [row, found] of rows) {
    const line = { row: drawRow(row, found, columns, lanes), cells: found.filter((cell) => cell !== undefined) };
    body.append(line.row);
    rowsDrawn.push(line);
    block.rows.push(line);
  }
  blocksDrawn.push(block);
  return block.block;
}

// Widths are set, in pixels: a browser that has to measure 10,000 cells takes its time.
function layOut(table, rows, columns, lanes) {
  const heads = lanes.rows.length
    ? lanes.rows.map((axis, i) => LETTER * Math.max(...rows.map(([row]) => said(axis, row[i]).length)) + 12) : [40];
  const needed = Math.max(0, ...lanes.columns.map((axis) => LETTER * shortName(axis).length + 16));
  heads[heads.length - 1] += Math.max(0, needed - heads.reduce((sum, wide) => sum + wide, 0));
  const cell = cellWidth(columns, lanes);
  const widths = [...heads.map((wide) => Math.min(Math.ceil(wide), 220)), ...columns.map((_, i) => cell + (starts(columns, i) ? 8 : 0))];
  table.prepend(make("colgroup", {}, ...widths.map((wide) => {
    const column = document.createElement("col");
    column.style.width = `${wide}px`;
    return column;
  })));
  table.style.width = `${widths.reduce((sum, wide) => sum + wide + 2, 2)}px`;
  const before = heads.reduce((left, _, i) => {
    table.style.setProperty(`--left${i}`, `${left}px`);
    return left + widths[i] + 2;
  }, 0);
  return { heads: before, columns: [...table.querySelectorAll("col")].slice(heads.length) };
}

// Innermost labels must fit a cell, outer ones the cells that they span.
function cellWidth(columns, lanes) {
  let wide = 24;
  lanes.columns.forEach((axis, level) => {
    for (const [first, span] of spans(columns, level)) {
      wide = Math.max(wide, (said(axis, columns[first][level]).length * LETTER + 6) / span);
    }
  });
  return Math.ceil(Math.min(wide, 160));
}

// Neighbouring columns that share their values up to this level: where each run starts and how long it is.
function spans(columns, level) {
  const found = [];
  columns.forEach((column, i) => {
    const same = i > 0 && column.slice(0, level + 1).every((value, at) => value === columns[i - 1][at]);
    if (same) found.at(-1)[1] += 1;
    else found.push([i, 1]);
  });
  return found;
}

function drawHead(columns, lanes, heads) {
  const head = document.createElement("thead");
  lanes.columns.forEach((axis, level) => {
    const row = head.appendChild(make("tr", {}, make("th", { scope: "row", colSpan: heads, class: "axis" }, shortName(axis))));
    for (const [first, span] of spans(columns, level)) {
      const innermost = level === lanes.columns.length - 1;
      row.append(make("th", {
        scope: innermost ? "col" : "colgroup", colSpan: span, class: `${starts(columns, first) ? "start" : ""}${innermost ? " each" : ""}`,
        "aria-label": `${shortName(axis)} ${said(axis, columns[first][level])}`,
      }, said(axis, columns[first][level])));
    }
  });
  return head;
}

// A column before which there is a gap: an outer axis has a new value.
const starts = (columns, i) => i > 0 && columns[i].slice(0, -1).some((value, at) => value !== columns[i - 1][at]);

function drawRow(row, found, columns, lanes) {
  const line = document.createElement("tr");
  if (!row.length) line.append(make("th", { scope: "row" }, "all"));
  row.forEach((value, i) => line.append(make("th", { scope: "row" }, said(lanes.rows[i], value))));
  columns.forEach((_, i) => {
    const place = line.appendChild(found[i] === undefined ? document.createElement("td") : drawCell(found[i]));
    if (starts(columns, i)) place.classList.add("start");
  });
  return line;
}

function drawCell(cell) {
  const place = document.createElement("td");
  place.className = `cell v-${verdictOf(cell)}${evidenceOf(cell) ? ` e-${evidenceOf(cell)}` : ""}`;
  place.textContent = data.glyphs[get(cell, "verdict")];
  place.tabIndex = -1;
  place.dataset.cell = cell;
  place.setAttribute("aria-label", `${idOf(cell)}: ${sayVerdict(cell)}, ${sayEvidence(cell)}`);
  places[cell] = place;
  return place;
}

// Shows the cells that pass and hides the others: maps, rows and columns without any are gone, single cells leave a hole.
function showOnly(passes) {
  cells.forEach((_, cell) => places[cell]?.classList.toggle("off", !passes[cell]));
  for (const { row, cells: inside } of rowsDrawn) row.hidden = !inside.some((cell) => passes[cell]);
  const used = new Set(columnOf.filter((_, cell) => passes[cell] && places[cell]));
  for (const { block, rows, columns, heads } of blocksDrawn) {
    block.hidden = rows.every(({ row }) => row.hidden);
    columns.forEach((column, i) => column.classList.toggle("gone", !used.has(i)));
    const left = columns.filter((_, i) => used.has(i)).reduce((sum, column) => sum + parseFloat(column.style.width) + 2, 0);
    block.style.width = `${heads + left + 4}px`;
    nameRowsOnce(rows);
  }
}

// A row says of its outer axes only what the row above it does not; a screen reader hears all of it.
function nameRowsOnce(rows) {
  let above = [];
  for (const { row } of rows) {
    if (row.hidden) continue;
    const heads = [...row.querySelectorAll("th")];
    let same = true;
    heads.forEach((head, i) => {
      same = same && i < heads.length - 1 && above[i] === head.textContent;
      head.classList.toggle("again", same);
    });
    above = heads.map((head) => head.textContent);
  }
}
