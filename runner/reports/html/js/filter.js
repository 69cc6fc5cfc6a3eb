// The language of `--filter`: a port of runner/filters.py, which is the definition; a test holds the two together.
// `axes`: [{name, values, labels, counts, releases}]; `archs`: other names of archs. A filter is {wanted, unwanted, globs}.

const OPERATOR = "!=|>=|<=|==|=|>|<";
const TERM = new RegExp(`^(.*?)\\s*(${OPERATOR})\\s*(.*)$`, "s");
const HOW_TO = "write a label, a glob over ids, axis=value, axis!=value, axis=* or, for vllm, spec_k and chunk, axis>=number";
const HOLDS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b };

class FilterError extends Error {}

// Several filters, all of which must hold, are parted by a space or a semicolon; spaces around = and comma do not count.
function splitFilters(text) {
  const tight = new RegExp(`\\s*(${OPERATOR}|,)\\s*`, "g");
  return text.split(";").flatMap((part) => part.trim().replace(tight, "$1").split(/\s+/)).filter((part) => part);
}

function parseFilter(text, axes, archs) {
  const found = { wanted: new Map(), unwanted: [], globs: [] };
  for (const word of text.toLowerCase().split(",").map((each) => each.trim())) {
    if (!word) throw new FilterError(`“${text}” has an empty word: ${HOW_TO}`);
    const term = TERM.exec(word);
    if (term) addComparison(found, word, term, axes, archs);
    else if (!addLabel(found, word, axes, archs)) addGlob(found, word, axes);
  }
  return found;
}

function addComparison(found, word, [, name, op, text], axes, archs) {
  const axis = axes.find((each) => each.name === name);
  if (!axis) throw new FilterError(`unknown axis “${name}” in “${word}”${hint(name, axes.map((each) => each.name))}`);
  if (op in HOLDS && axis.releases) {
    want(found, name, ofReleases(word, op, text, axis));
    return;
  }
  if (op in HOLDS) {
    if (!axis.counts) throw new FilterError(`axis “${name}” has no order, in “${word}”: use = or !=`);
    if (!/^[0-9]{1,12}$/.test(text)) {
      throw new FilterError(`“${word}” does not compare with a whole number: ${HOW_TO}`);
    }
    want(found, name, (value) => typeof value === "number" && HOLDS[op](value, Number(text)));
    return;
  }
  if (!text || TERM.test(text)) throw new FilterError(`malformed filter “${word}”: ${HOW_TO}`);
  const labels = axis.labels.map((label, i) => [label, axis.values[i]]);
  const names = new Map([...labels, ...axis.values.map((value) => [String(value), value])]);
  const known = [text, name === "arch" ? archAlias(text, archs) : null].filter((each) => names.has(each));
  let values = known.map((each) => names.get(each));
  if (!values.length) {
    const glob = globOf(text);
    values = [...names].filter(([each]) => glob.test(each)).map(([, value]) => value);
  }
  if (!values.length) {
    throw new FilterError(`axis “${name}” has no value “${text}” here${hint(text, axis.values.map(String))}`);
  }
  if (op === "!=") found.unwanted.push([name, values]);
  else want(found, name, (value) => values.includes(value));
}

// Every release that the operator holds for; a candidate is none, and never compared.
function ofReleases(word, op, text, axis) {
  const limit = release(text);
  if (!limit) throw new FilterError(`“${word}” does not compare with a release such as 0.32.0: ${HOW_TO}`);
  const values = axis.values.filter((value) => release(value) && HOLDS[op](inOrder(release(value), limit), 0));
  if (!values.length) throw new FilterError(`no release of axis “${axis.name}” is ${op}${text}`);
  return (value) => values.includes(value);
}

// The numbers of a release without trailing zeros, so that 0.31 and 0.31.0 are equal; null where it is none.
function release(value) {
  if (!/^\d{1,6}(\.\d{1,6})*$/.test(value)) return null;
  const numbers = String(value).split(".").map(Number);
  while (numbers.length && !numbers.at(-1)) numbers.pop();
  return numbers;
}

// Below 0 where the first comes before the second, as Python compares tuples.
function inOrder(first, second) {
  const at = first.findIndex((number, i) => number !== second[i]);
  if (at < 0) return first.length - second.length;
  return at < second.length ? first[at] - second[at] : 1;
}

function addLabel(found, word, axes, archs) {
  for (const name of [word, archAlias(word, archs)]) {
    for (const axis of axes) {
      const at = axis.labels.indexOf(name);
      if (at >= 0) {
        want(found, axis.name, (value) => value === axis.values[at]);
        return true;
      }
    }
  }
  return false;
}

function addGlob(found, word, axes) {
  if (/[-*?[]/.test(word)) {
    found.globs.push(globOf(word));
    return;
  }
  if (axes.some((axis) => axis.name === word)) throw new FilterError(`“${word}” in a filter is an axis: ${HOW_TO}`);
  const labels = axes.flatMap((axis) => axis.labels);
  throw new FilterError(`no cell of this run has the label “${word}”${hint(word, labels)}`);
}

function want(found, name, holds) {
  found.wanted.set(name, [...(found.wanted.get(name) ?? []), holds]);
}

// For each axis, which of its values pass. A cell passes if all of its values do, and its id matches one of any globs.
function allowedValues(filter, axes) {
  return axes.map((axis) => axis.values.map((value) => {
    const wanted = filter.wanted.get(axis.name);
    return (!wanted || wanted.some((holds) => holds(value)))
      && filter.unwanted.every(([name, values]) => name !== axis.name || !values.includes(value));
  }));
}

function archAlias(word, archs) {
  if (Object.hasOwn(archs, word)) return archs[word];
  const found = /^(?:sm_?)?(\d{1,2})(?:\.|(?<=\d))(\d)[af]?$/.exec(word);
  return found && (word.includes(".") || word.startsWith("sm")) ? `sm${found[1]}${found[2]}` : null;
}

// Python's fnmatch: * and ?, [abc], [a-c], [!abc]; a [ without its ] is itself, and so is a ] that comes first.
function globOf(text) {
  let pattern = "";
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    const end = char === "[" ? text.indexOf("]", at + (text[at + 1] === "!" ? 3 : 2)) : -1;
    if (char === "*") pattern += ".*";
    else if (char === "?") pattern += ".";
    else if (end > 0) {
      pattern += setOf(text.slice(at + 1, end));
      at = end;
    } else pattern += char.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
  }
  return new RegExp(`^(?:${pattern})$`, "s");
}

function setOf(inside) {
  const negated = inside.startsWith("!");
  const chars = negated ? inside.slice(1) : inside;
  const parts = [];
  for (let at = 0; at < chars.length; at += 1) {
    if (chars[at + 1] === "-" && at + 2 < chars.length) {
      if (chars[at] <= chars[at + 2]) parts.push(`${escaped(chars[at])}-${escaped(chars[at + 2])}`);
      at += 2;
    } else parts.push(escaped(chars[at]));
  }
  if (!parts.length) return negated ? "." : "(?!)";
  return `[${negated ? "^" : ""}${parts.join("")}]`;
}

const escaped = (char) => char.replace(/[\\^\]\-[]/, "\\$&");

function hint(word, names) {
  const near = names.map((name) => [distance(word, name), name]).sort((a, b) => a[0] - b[0]);
  if (near.length && near[0][0] <= Math.max(1, word.length / 2)) return `, did you mean “${near[0][1]}”?`;
  return names.length <= 8 ? `; there is ${names.join(", ")}` : "";
}

// Levenshtein's distance, over the first 60 characters.
function distance(a, b) {
  const [from, to] = [a.slice(0, 60), b.slice(0, 60)];
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= to.length; j += 1) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[to.length];
}
