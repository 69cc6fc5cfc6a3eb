// Reads {files: {path: text}, asked: [path, ...]} and writes what GitHub's parser makes of each workflow asked for.
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

// The package imports its schemas as Node took them before 22.
registerHooks({
  load: (url, about, next) =>
    next(url, url.endsWith(".json") ? { ...about, importAttributes: { type: "json" } } : about),
});
const { NoOperationTraceWriter, convertWorkflowTemplate, parseWorkflow } = await import("@actions/workflow-parser");
const { isBasicExpression, isMapping, isSequence } = await import("@actions/workflow-parser");

function plain(token) {
  if (isMapping(token)) return Object.fromEntries([...token].map(({ key, value }) => [String(key), plain(value)]));
  if (isSequence(token)) return [...token].map(plain);
  if (isBasicExpression(token)) return { "${{ }}": token.expression };
  return token.toJSON() ?? null;
}

const job = (one) => ({
  id: String(one.id),
  condition: one.if.expression,
  needs: (one.needs ?? []).map(String),
  calls: one.type === "reusableWorkflowJob" ? String(one.ref) : null,
  steps: (one.steps ?? []).map((step) => step.if.expression),
  outputs: isMapping(one.outputs) ? [...one.outputs].map(({ key }) => String(key)) : [],
});

async function told(path, files) {
  const parsed = parseWorkflow({ name: path, content: files[path] }, new NoOperationTraceWriter());
  if (!parsed.value) return { errors: parsed.context.errors.getErrors().map((one) => one.message) };
  const fetched = { getFileContent: async (ref) => ({ name: ref.path, content: files[ref.path] }) };
  const made = await convertWorkflowTemplate(parsed.context, parsed.value, fetched, { fetchReusableWorkflowDepth: 4 });
  if (made.errors) return { errors: made.errors.map((one) => one.Message) };
  return { errors: [], document: plain(parsed.value), events: made.events, jobs: made.jobs.map(job) };
}

const { files, asked } = JSON.parse(readFileSync(0, "utf8"));
const answers = [];
for (const path of asked) answers.push(await told(path, files));
process.stdout.write(JSON.stringify(answers));
