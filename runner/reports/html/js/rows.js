// The virtual batches of a step, by the definition of chunked local attention (Llama 4): the sequence is cut into chunks,
// the query of a request is its last `query` positions, and it has one row for each chunk that it touches.
// `runs`: like requests in a row, [query_len, seq_len, times]. Nothing is built row by row: a step may have millions.

const rowsOf = ([query, seq], chunk) => Math.floor((seq - 1) / chunk) - Math.floor((seq - query) / chunk) + 1;

function totalRows(runs, chunk) {
  return runs.reduce((sum, run) => sum + rowsOf(run, chunk) * run[2], 0);
}

const isBatch = (runs, chunk) =>
  Number.isSafeInteger(chunk) && chunk > 0 && runs.length > 0
  && runs.every(([query, seq]) => Number.isSafeInteger(query) && Number.isSafeInteger(seq) && 0 < query && query <= seq);

// Row `number` of the step, counted from 0: whose it is, its chunk, and in the chunk its first query token and its last.
function rowAt(runs, chunk, number) {
  let left = number;
  let request = 0;
  for (const [query, seq, times] of runs) {
    const each = rowsOf([query, seq], chunk);
    if (left < each * times) {
      request += Math.floor(left / each);
      const first = Math.floor((seq - query) / chunk) + (left % each);
      return {
        request, query, seq, chunk: first,
        from: Math.max(seq - query, first * chunk) - first * chunk,
        to: Math.min(seq, (first + 1) * chunk) - first * chunk,
      };
    }
    left -= each * times;
    request += times;
  }
  return null;
}
