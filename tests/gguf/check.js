// check: a GGUF file of ours as a public reader (@huggingface/gguf, in NODE_PATH) reads it: every tensor
// has to the bit the values that `export --to safetensors` wrote of the same model in Hugging Face's
// names, sizes are those of its metadata, and tokens are those of the tokenizer.
// Usage: node check.js FILE.gguf FILE.safetensors [TOKENIZER.json]
"use strict";
const assert = require("assert");
const fs = require("fs");
const { gguf } = require("@huggingface/gguf");

const [path, other, tokenizer] = process.argv.slice(2);
const names = { attn_norm: "ln_1", attn_qkv: "attn.c_attn", attn_output: "attn.c_proj", ffn_norm: "ln_2", ffn_up: "mlp.c_fc",
  ffn_down: "mlp.c_proj", token_embd: "transformer.wte", position_embd: "transformer.wpe", output_norm: "transformer.ln_f",
  output: "lm_head" };
const floats = (bytes, from, count) => new Float32Array(bytes.buffer.slice(bytes.byteOffset + from, bytes.byteOffset + from + 4 * count));

function theirs(name) {
  const [, layer, part, kind] = /^(?:blk\.(\d+)\.)?(\w+)\.(\w+)$/.exec(name);
  return `${layer === undefined ? "" : `transformer.h.${layer}.`}${names[part]}.${kind}`;
}

(async () => {
  const { metadata: m, tensorInfos, tensorDataOffset } = await gguf(path, { allowLocalFile: true });
  const bytes = fs.readFileSync(path), st = fs.readFileSync(other), length = Number(st.readBigUInt64LE(0));
  const head = JSON.parse(st.subarray(8, 8 + length)), config = head.__metadata__;
  assert.strictEqual(m.version, 3);
  assert.strictEqual(m["general.architecture"], "gpt2");
  for (const [key, value] of [["block_count", "n_layer"], ["embedding_length", "n_embd"], ["attention.head_count", "n_head"],
    ["feed_forward_length", "n_inner"], ["vocab_size", "vocab_size"]]) {
    assert.strictEqual(m["gpt2." + key], Number(config[value]), key);
  }
  assert(Math.abs(m["gpt2.attention.layer_norm_epsilon"] - 1e-5) < 1e-10);
  assert.strictEqual(tensorInfos.length, Object.keys(head).length - 1);
  for (const info of tensorInfos) {
    const view = head[theirs(info.name)], shape = info.shape.map(Number), count = shape.reduce((a, b) => a * b);
    assert(view, info.name);
    assert.strictEqual(info.dtype, 0);
    assert.strictEqual(Number(info.offset) % 32, 0);
    const ours = floats(bytes, Number(tensorDataOffset) + Number(info.offset), count);
    const want = floats(st, 8 + length + view.data_offsets[0], (view.data_offsets[1] - view.data_offsets[0]) / 4);
    const turned = /(qkv|attn_output|ffn_up|ffn_down)\.weight$/.test(info.name), [inner, outer] = [shape[0], shape[1] || 1];
    if (info.name === "position_embd.weight") assert.strictEqual(outer, m["gpt2.context_length"]);
    else assert.strictEqual(want.length, count, info.name);
    for (let i = 0; i < count; i++) {
      const at = turned ? i % inner * outer + Math.floor(i / inner) : i;
      assert.strictEqual(ours[i], want[at], `${info.name}[${i}]`);
    }
    assert(!turned || (view.shape[0] === inner && view.shape[1] === outer), info.name);
  }
  const tokens = m["tokenizer.ggml.tokens"];
  assert.strictEqual(tokens.length, m["gpt2.vocab_size"]);
  if (tokenizer) {
    const { model, added_tokens: added } = JSON.parse(fs.readFileSync(tokenizer));
    for (const [token, i] of Object.entries(model.vocab)) assert.strictEqual(tokens[i], token);
    for (const { id, content } of added) assert.strictEqual(tokens[id], content);
    const merges = model.merges.map(merge => Array.isArray(merge) ? merge.join(" ") : merge);
    assert.deepStrictEqual(m["tokenizer.ggml.merges"], merges);
    assert.strictEqual(tokens[m["tokenizer.ggml.eos_token_id"]], "<|endoftext|>");
    assert.strictEqual(m["tokenizer.ggml.token_type"][m["tokenizer.ggml.eos_token_id"]], 3);
  } else {
    const spelt = tokens.map(token => token.length === 1 ? token.charCodeAt(0) : parseInt(token.slice(2), 16));
    assert.strictEqual(Buffer.from(spelt).toString("hex"), config.symbol_bytes);
  }
  console.log(`read ${path}: ${tensorInfos.length} tensors, ${tokens.length} tokens`);
})().catch(error => { console.error(error); process.exit(1); });
