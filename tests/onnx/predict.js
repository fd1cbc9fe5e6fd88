// predict: onnxruntime's probabilities for the rows of a CSV file are those that `grapevine predict
// --json` told. Needs onnxruntime-node in NODE_PATH.
// Usage: node predict.js MODEL.onnx ROWS.csv PREDICTIONS.jsonl C,H,W
"use strict";
const fs = require("fs");
const runtime = require("onnxruntime-node");

const [model, csv, told, shape] = process.argv.slice(2);
const lines = (path) => fs.readFileSync(path, "utf8").trim().split("\n");

(async () => {
    const rows = lines(csv).map((line) => line.split(",").map(Number));
    const answers = lines(told).map((line) => JSON.parse(line));
    const input = new runtime.Tensor("float32", Float32Array.from(rows.flat()),
                                     [rows.length, ...shape.split(",").map(Number)]);
    const session = await runtime.InferenceSession.create(model, { intraOpNumThreads: 1 });
    const logits = (await session.run({ input })).logits;
    const classes = logits.dims[1];
    let error = rows.length === answers.length ? 0 : Infinity;
    answers.forEach((answer, r) => {
        const row = Array.from(logits.data.slice(r * classes, (r + 1) * classes));
        const weights = row.map((x) => Math.exp(x - Math.max(...row)));
        const sum = weights.reduce((a, b) => a + b);
        for (const { class: c, probability } of answer.top) {
            error = Math.max(error, Math.abs(weights[c] / sum - probability));
        }
    });
    console.log(`${error <= 1e-5 ? "same" : "DIFFERS"}: ${answers.length} rows, ${error.toExponential(1)}`);
    process.exit(error <= 1e-5 ? 0 : 1);
})();
