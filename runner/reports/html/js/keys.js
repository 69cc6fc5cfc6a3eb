// What keys do, on a cell and anywhere else.

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
  const elsewhere = event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select");
  if (event.defaultPrevented || elsewhere) return;
  const toFilter = () => { box.focus(); box.select(); };
  const does = { "/": toFilter, "?": () => byId("help").showModal(), d: changeTheme }[event.key];
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
