// compare: run every NAME.onnx of a folder with onnxruntime and compare with NAME.json, which holds
// the input and what our own forward pass gives for it. Needs onnxruntime-node in NODE_PATH.
// Usage: node compare.js FOLDER
"use strict";
const fs = require("fs");
const path = require("path");
const runtime = require("onnxruntime-node");

const folder = process.argv[2];
const tolerance = 2e-5; // of the largest logit; float32 sums in another order

function tensorOf(json) {
    if (json.type === "tokens") {
        return new runtime.Tensor("int64", BigInt64Array.from(json.input.map(BigInt)), json.shape);
    }
    return new runtime.Tensor("float32", Float32Array.from(json.input), json.shape);
}

async function compare(name) {
    const json = JSON.parse(fs.readFileSync(path.join(folder, name + ".json"), "utf8"));
    const options = { intraOpNumThreads: 1, graphOptimizationLevel: "all", logSeverityLevel: 3 };
    const session = await runtime.InferenceSession.create(path.join(folder, name + ".onnx"), options);
    const output = (await session.run({ input: tensorOf(json) })).logits;
    const values = output.data;
    let most = 0, error = values.length === json.logits.length ? 0 : Infinity;
    for (let i = 0; i < values.length; i++) {
        most = Math.max(most, Math.abs(json.logits[i]));
        error = Math.max(error, Math.abs(values[i] - json.logits[i]));
        if (Number.isNaN(values[i])) error = Infinity;
    }
    const isGood = error <= tolerance * Math.max(most, 1);
    console.log(`${isGood ? "same" : "DIFFERS"} ${name}: ${error.toExponential(1)} of ${most.toFixed(3)}`);
    return isGood;
}

(async () => {
    const names = fs.readdirSync(folder).filter((f) => f.endsWith(".json")).map((f) => f.slice(0, -5));
    let wrong = names.length > 0 ? 0 : 1;
    for (const name of names.sort()) {
        try {
            if (!(await compare(name))) wrong++;
        } catch (error) {
            console.log(`DIFFERS ${name}: ${error.message}`);
            wrong++;
        }
    }
    process.exit(wrong > 0 ? 1 : 0);
})();
