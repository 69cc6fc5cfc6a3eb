// What surrounds the map: the words that follow the pointer, and dark or light.

const tip = byId("tip");
function showTip(cell) {
  const reason = textOf(cell, get(cell, "reason"));
  tip.replaceChildren(make("b", {}, idOf(cell)), make("span", {}, `${sayVerdict(cell)} · ${sayEvidence(cell)}`),
    ...(reason ? [make("span", {}, reason.slice(0, 160) + (reason.length > 160 ? " …" : ""))] : []));
  tip.hidden = false;
  const at = places[cell].getBoundingClientRect();
  const wide = tip.offsetWidth;
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - wide - 8))}px`;
  tip.style.top = `${at.bottom + 6 + tip.offsetHeight > innerHeight ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
}
function hideTip() { tip.hidden = true; }

// Without a choice of the reader's the style follows the system by itself.
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
function nameTheme() { byId("theme").textContent = isDark() ? "Light" : "Dark"; }

function changeTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  nameTheme();
  try { localStorage.setItem("attnmatrix-theme", theme); } catch { /* a page from a file may have no storage */ }
}

function firstTheme() {
  let kept = null;
  try { kept = localStorage.getItem("attnmatrix-theme"); } catch { /* the system's choice then */ }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  nameTheme();
  system.addEventListener("change", nameTheme);
}
