// Moving over the cells by keyboard: from where one is to the next cell that is shown.

let current = -1; // the cell that Tab comes back to

const shown = (cell) => places[cell] && !places[cell].classList.contains("off") && !places[cell].parentElement.hidden
  && !places[cell].closest("figure").hidden;
const cellOf = (element) => Number(element?.closest?.("td.cell")?.dataset.cell ?? -1);

function setCurrent(cell) {
  if (places[current]) places[current].tabIndex = -1;
  current = cell;
  if (places[current]) places[current].tabIndex = 0;
}

function goTo(cell) {
  setCurrent(cell);
  places[cell].focus({ preventScroll: true });
  places[cell].scrollIntoView({ block: "nearest", inline: "nearest" });
}

// The first shown cell, if the current one is not shown: Tab must lead somewhere.
function keepReachable() {
  if (shown(current)) return;
  setCurrent(cells.findIndex((_, cell) => shown(cell)));
}

// Where a key leads from a cell; -1 for nowhere.
function after(cell, key, far) {
  const place = places[cell];
  const row = place.parentElement;
  const line = [...row.cells].map(cellOf).filter((each) => each >= 0 && shown(each));
  const at = line.indexOf(cell);
  switch (key) {
    case "ArrowLeft": return line[at - 1] ?? -1;
    case "ArrowRight": return line[at + 1] ?? -1;
    case "Home": return far ? cellsInOrder()[0] : line[0];
    case "End": return far ? cellsInOrder().at(-1) : line.at(-1);
    case "ArrowUp": return inColumn(row, place.cellIndex, -1);
    case "ArrowDown": return inColumn(row, place.cellIndex, 1);
    default: return -1;
  }
}

const cellsInOrder = () => rowsDrawn.flatMap(({ cells: inside }) => inside.filter(shown));

function inColumn(row, column, step) {
  for (let i = rowsDrawn.findIndex((line) => line.row === row) + step; rowsDrawn[i]; i += step) {
    const cell = cellOf(rowsDrawn[i].row.cells[column]);
    if (cell >= 0 && shown(cell)) return cell;
  }
  return -1;
}
