// Reads a JSON list of [expression, contexts] and writes what GitHub's evaluator makes of each.
import { readFileSync } from "node:fs";
import { Evaluator, Lexer, Parser, data, wellKnownFunctions } from "@actions/expressions";

const revive = (text) => JSON.parse(text, (_, value) => {
  if (value === null) return new data.Null();
  if (typeof value === "string") return new data.StringData(value);
  if (typeof value === "number") return new data.NumberData(value);
  if (typeof value === "boolean") return new data.BooleanData(value);
  if (Array.isArray(value)) return new data.Array(...value);
  return new data.Dictionary(...Object.entries(value).map(([key, inner]) => ({ key, value: inner })));
});

function plain(value) {
  switch (value.kind) {
    case data.Kind.Null: return ["null"];
    case data.Kind.Boolean: return ["boolean", value.value];
    case data.Kind.Number: return ["number", String(value.value)];
    case data.Kind.String: return ["text", value.value];
    case data.Kind.Array: return ["array", value.values().map(plain)];
    default: return ["object", value.pairs().map(({ key, value: inner }) => [key, plain(inner)])];
  }
}

const cases = JSON.parse(readFileSync(0, "utf8"));
const answers = cases.map(([expression, contexts]) => {
  try {
    const names = Object.keys(contexts);
    const parsed = new Parser(new Lexer(expression).lex().tokens, names, Object.values(wellKnownFunctions)).parse();
    return plain(new Evaluator(parsed, revive(JSON.stringify(contexts))).evaluate());
  } catch (error) {
    return ["error", String(error.message)];
  }
});
process.stdout.write(JSON.stringify(answers));
