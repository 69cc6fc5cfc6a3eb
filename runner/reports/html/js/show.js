// Which part of the map is shown, by what a filter lets pass.

// Shows the cells that pass and hides the others: maps, rows and columns without any are gone, a single cell is a hole.
function showOnly(passes) {
  const { top, width: wide } = maps.getBoundingClientRect();
  cells.forEach((_, cell) => {
    if (passes[cell] !== passed[cell]) places[cell]?.classList.toggle("off", !passes[cell]);
  });
  passed = passes;
  for (const { row, cells: inside } of rowsDrawn) row.hidden = !inside.some((cell) => passes[cell]);
  const used = new Set(columnOf.filter((_, cell) => passes[cell] && places[cell]));
  for (const { block, rows, columns, heads } of blocksDrawn) {
    const gone = rows.every(({ row }) => row.hidden);
    block.classList.toggle("gone", gone);
    columns.forEach((column, i) => column.classList.toggle("gone", !used.has(i)));
    const kept = columns.filter((_, i) => used.has(i));
    const left = kept.reduce((sum, column) => sum + parseFloat(column.style.width) + 2, 0);
    block.style.width = `${gone ? 0 : heads + left + 4}px`;
    nameRowsOnce(rows);
  }
  putOff(top, wide);
}

// A browser lays out at once whatever it had on the screen, though it may have grown far out of it: 10,000 cells at
// worst. So what will not be on the screen is put off, in the height that it is going to have, until the frame was shown.
// `start` is where the maps begin and `wide` how wide they may be, asked for before anything was changed.
function putOff(start, wide) {
  const near = innerHeight * 1.5;
  let top = start;
  let across = 0;
  let lineHigh = 0;
  for (const { block, rows } of blocksDrawn) {
    if (block.classList.contains("gone")) continue;
    const high = heightOf(block, rows);
    across += parseFloat(block.style.width) + 36;
    if (across > wide + 36 && lineHigh) {
      top += lineHigh;
      [across, lineHigh] = [parseFloat(block.style.width) + 36, 0];
    }
    lineHigh = Math.max(lineHigh, high + 18);
    block.style.containIntrinsicSize = `none ${high}px`;
    block.classList.toggle("far", top > near || top + high < -near);
  }
  requestAnimationFrame(() => setTimeout(() => blocksDrawn.forEach(({ block }) => block.classList.remove("far"))));
}

// In pixels, by the style: a line of the title, lines of the head, rows.
function heightOf(block, rows) {
  const kept = rows.filter(({ row }) => !row.hidden);
  return 25 + 22 * block.querySelector("thead").rows.length + 24 * kept.length;
}

// A row says of its outer axes only what the row above it does not; a screen reader hears all of it.
function nameRowsOnce(rows) {
  let above = [];
  for (const { row, names } of rows) {
    if (row.hidden) continue;
    let same = true;
    names.forEach((name, i) => {
      same = same && i < names.length - 1 && above[i] === name;
      row.cells[i].classList.toggle("again", same);
    });
    above = names;
  }
}
