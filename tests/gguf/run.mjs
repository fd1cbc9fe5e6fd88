// run: a GGUF file of ours in llama.cpp (node-llama-cpp) beside the same model's ONNX file in onnxruntime:
// the probabilities of the next token at each place of a text, the perplexity of both, and, with TOKENS
// (from `grapevine tokenize`), that the text's tokens are the same.
// Usage: node run.mjs MODULES FILE.gguf FILE.onnx TEXT MOST [TOKENS]     MOST: of a difference of probabilities
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, gguf, onnx, text, most, bin] = process.argv.slice(2);
const { getLlama } = await import(pathToFileURL(path.join(modules, "node-llama-cpp/dist/index.js")));
const runtime = createRequire(import.meta.url)("onnxruntime-node");
const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, skipDownload: true, logLevel: "error" });
const model = await llama.loadModel({ modelPath: gguf });
const length = model.trainContextSize;
const all = Array.from(model.tokenize(fs.readFileSync(text, "utf8")));
const session = await runtime.InferenceSession.create(onnx, { intraOpNumThreads: 1 });
// Room for more than is asked: of a full context this library forgets the beginning.
const context = await model.createContext({ contextSize: length + 16, threads: 1, flashAttention: false,
  experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32" });
const sequence = context.getSequence();
let worst = 0, ours = 0, theirs = 0, count = 0;

if (bin) {
  const data = fs.readFileSync(bin), isWide = data.readUInt32LE(0) === 20240801;
  const want = Array.from(isWide ? new Uint32Array(data.buffer.slice(data.byteOffset + 1024, data.byteOffset + data.length))
    : new Uint16Array(data.buffer.slice(data.byteOffset + 1024, data.byteOffset + data.length)));
  while (want.length > all.length) want.pop(); // the end of the text
  if (JSON.stringify(want) !== JSON.stringify(all)) {
    console.error("FAILED: llama.cpp makes other tokens of the text");
    process.exit(1);
  }
}
for (let at = 0; at + length + 1 <= all.length && at < 4 * length; at += length) {
  const tokens = all.slice(at, at + length), next = all.slice(at + 1, at + length + 1);
  const input = new runtime.Tensor("int64", BigInt64Array.from(tokens.map(BigInt)), [1, length]);
  const { data, dims } = (await session.run({ input })).logits;
  await sequence.clearHistory();
  const steps = await sequence.controlledEvaluate(tokens.map(token => [token, { generateNext: { probabilities: true } }]));
  steps.forEach((step, i) => {
    const row = data.slice(i * dims[2], (i + 1) * dims[2]), high = row.reduce((a, b) => Math.max(a, b));
    const sum = row.reduce((a, b) => a + Math.exp(b - high), 0);
    row.forEach((logit, token) => { worst = Math.max(worst, Math.abs(Math.exp(logit - high) / sum - (step.next.probabilities.get(token) || 0))); });
    ours -= Math.log(Math.exp(row[next[i]] - high) / sum);
    theirs -= Math.log(step.next.probabilities.get(next[i]));
    count++;
  });
}
console.log(`${count} places: perplexity ${Math.exp(ours / count).toFixed(5)}, llama.cpp's ${Math.exp(theirs / count).toFixed(5)}; ` +
  `probabilities differ by ${worst.toExponential(1)} at most`);
process.exit(count > 0 && worst <= Number(most) ? 0 : 1);
