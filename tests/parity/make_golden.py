#!/usr/bin/python3
"""Losses of 50 training steps by PyTorch, in float64, as golden numbers for tests/contract/test_parity.c.

    make_golden.py FOLDER [MODEL...]           write FOLDER/MODEL.json
    make_golden.py --check FOLDER [MODEL...]   train again and compare; exit 1 on a difference

Weights and batches are not kept but made, by a hash that C repeats to the bit. Value i of stream
NAME (a tensor's name, "input", "class", "label", "symbol"):

    z = fnv1a64(NAME) + (i + 1) * 0x9E3779B97F4A7C15 mod 2^64, then the finalizer of splitmix64
    unit = (z >> 40) / 2^23 - 1                          in [-1, 1), exact in float32
    tensor value = (float32)(base + bound * unit)        base and bound stand in the file

Image models, step s, sample b: label = (z("label", s batch + b) >> 40) classes >> 24 and
input[j] = (unit("input", (s batch + b) values + j) + unit("class", label values + j)) / 2.
Sequences: symbol 0 = (z("symbol", (s batch + b)(length + 1)) >> 40) classes >> 24, and symbol t + 1
= (5 symbol t + 7 + (z("symbol", (s batch + b)(length + 1) + t + 1) >> 62)) mod classes: input is all
but the last, labels all but the first. So there is something to learn, and what is learnt decides
the later losses.

float32 by PyTorch itself is run beside: how far it strays is printed and kept, so that the
tolerance of the test is seen to be fair: at least four times that. Tensors that stray too far in
float32 are marked as noise (biases that are still near zero; the key part of qkv.bias has no effect
on the loss, so that Adam walks it at random). The first step's gradients are kept, too, as norm and
as product with the stream of the tensor's name: no step has blurred them yet.
"""
import json
import math
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "grapevine"))
import models  # noqa: E402

STEPS = 50
LOSS_TOLERANCE, TENSOR_TOLERANCE = 1e-4, 1e-3  # of the C test

# Small on purpose: the C test runs them on every commit. The rates are the largest of a coarse scan
# at which float32 follows float64; beyond them units that switch at another step decide.
RUNS = {
    "mlp": dict(batch=8, optimizer="momentum", lr=0.02, beta=0.9),
    "cnn": dict(batch=8, optimizer="momentum", lr=0.006, beta=0.9),
    "resnet20": dict(batch=8, optimizer="momentum", lr=0.0003, beta=0.9),
    "gpt-nano": dict(batch=4, length=128, optimizer="adamw", lr=1e-3, beta1=0.9, beta2=0.95, wd=0.1),
    "lstm": dict(batch=4, length=32, optimizer="adamw", lr=3e-3, beta1=0.9, beta2=0.999, wd=0.01),
}


def bits(name, first, count):
    """z of the values first .. first + count - 1 of a stream."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit(name, first, count):
    return (bits(name, first, count) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def below(z, limit):
    return int(z >> np.uint64(40)) * limit >> 24


def origins(tensors):
    """base and bound of each tensor's initial values: 1 / sqrt(fan in), as PyTorch has it; for
    filters in front of a batch norm 4 / sqrt(fan in), because small ones make large steps there."""
    names, fan_in, result = {ours for ours, *_ in tensors}, {}, []
    for ours, _, tensor, _ in tensors:
        layer, part = ours.split(".", 1)
        bias = ours.replace("weight", "bias")
        if layer.startswith(("bn", "ln")):
            result.append((1.0 if part in ("weight", "running_variance") else 0.0, 0.0))
            continue
        if layer.startswith(("embed", "positions")):
            result.append((0.0, 0.05))
            continue
        if tensor.dim() > 1:
            fan_in[ours] = fan_in[bias] = tensor[0].numel()
        gain = 4 if layer.startswith("conv") and bias not in names else 1
        result.append((0.0, gain / math.sqrt(fan_in[ours])))
    return result


def batch_of(name, run, step, dtype):
    _, shape, classes = models.MODELS[name]
    batch = run["batch"]
    if models.is_sequence(name):
        length = run["length"]
        x = np.empty((batch, length + 1), dtype=np.int64)
        for b in range(batch):
            z = bits("symbol", (step * batch + b) * (length + 1), length + 1)
            x[b, 0] = below(z[0], classes)
            for t in range(length):
                x[b, t + 1] = (5 * x[b, t] + 7 + int(z[t + 1] >> np.uint64(62))) % classes
        x = torch.from_numpy(x)
        return x[:, :-1], x[:, 1:]
    values = math.prod(shape)
    labels = [below(z, classes) for z in bits("label", step * batch, batch)]
    rows = [(unit("input", (step * batch + b) * values, values) + unit("class", label * values, values)) / 2
            for b, label in enumerate(labels)]
    return torch.from_numpy(np.stack(rows)).reshape(batch, *shape).to(dtype), torch.tensor(labels)


def train(name, run, dtype):
    """Losses, and the tensors: what is kept of them, and their values at the end, in float64."""
    torch.manual_seed(1)
    model = models.build(name).to(dtype)
    tensors = models.tensors(model)
    begin = origins(tensors)
    with torch.no_grad():
        for (ours, _, tensor, _), (base, bound) in zip(tensors, begin):
            values = (base + bound * unit(ours, 0, tensor.numel())).astype(np.float32)
            tensor.copy_(torch.from_numpy(values).reshape(tensor.shape))
    if run["optimizer"] == "momentum":
        optimizer = torch.optim.SGD(model.parameters(), lr=run["lr"], momentum=run["beta"])
    else:
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=run["lr"], betas=(run["beta1"], run["beta2"]), eps=1e-8, weight_decay=run["wd"]
        )
    kept = [
        dict(name=ours, shape=list(tensor.shape), base=base, bound=bound, is_buffer=is_buffer)
        for (ours, _, tensor, is_buffer), (base, bound) in zip(tensors, begin)
    ]
    losses = []
    for step in range(STEPS):
        x, y = batch_of(name, run, step, dtype)
        optimizer.zero_grad()
        loss = models.loss_of(model(x), y)
        loss.backward()
        for entry, (ours, _, tensor, is_buffer) in zip(kept, tensors):
            if step == 0 and not is_buffer:
                gradient = tensor.grad.double().flatten()
                entry["gradient_norm"] = gradient.norm().item()
                entry["gradient_product"] = (gradient @ torch.from_numpy(unit(ours, 0, tensor.numel()))).item()
        optimizer.step()
        losses.append(loss.item())
    ends = [tensor.detach().double() for _, _, tensor, _ in tensors]
    for entry, end in zip(kept, ends):
        entry["norm"], entry["sum"] = end.norm().item(), end.sum().item()
    return losses, kept, ends


def optimizer_text(run):
    keys = [f"{key}={run[key]}" for key in ("lr", "beta", "beta1", "beta2", "wd") if key in run]
    return f"{run['optimizer']}:{','.join(keys)}"


def strays(value, reference):
    return max(abs(a / b - 1) for a, b in zip(value, reference))


def golden_of(name, run):
    losses, tensors, ends = train(name, run, torch.float64)
    losses32, tensors32, ends32 = train(name, run, torch.float32)
    golden = {"model": name, "steps": STEPS, "batch": run["batch"], "classes": models.MODELS[name][2]}
    if models.is_sequence(name):
        golden["length"] = run["length"]
    else:
        golden["shape"] = list(models.MODELS[name][1])
    golden.update(optimizer=optimizer_text(run), float32_strays=strays(losses32, losses), losses=losses, tensors=tensors)
    worst = 0
    for entry, entry32, end, end32 in zip(tensors, tensors32, ends, ends32):
        entry["is_noise"] = ((end - end32).norm() / end.norm()).item() > TENSOR_TOLERANCE / 4
        if not entry["is_buffer"]:
            worst = max(worst, abs(entry32["gradient_norm"] / entry["gradient_norm"] - 1),
                        abs(entry32["gradient_product"] - entry["gradient_product"]) / entry["gradient_norm"])
    noise = [t["name"] for t in tensors if t["is_noise"]]
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}; float32 strays by {golden['float32_strays']:.1e}, in the "
          f"first gradients by {worst:.1e}; noise in {len(noise)} tensors of {len(tensors)}", flush=True)
    assert golden["float32_strays"] < LOSS_TOLERANCE / 4, "chaos: take a smaller rate"
    return golden


def text_of(golden):
    """One key a line, one tensor a line."""
    lines = []
    for key, value in golden.items():
        if key == "tensors":
            rows = ",\n".join("    " + json.dumps(tensor) for tensor in value)
            lines.append(f'  "tensors": [\n{rows}\n  ]')
        elif key == "losses":
            rows = ",\n".join("    " + ", ".join(map(repr, value[i : i + 5])) for i in range(0, len(value), 5))
            lines.append(f'  "losses": [\n{rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differs(name, run, folder):
    """What the kept file says otherwise than PyTorch now; None if nothing."""
    with open(os.path.join(folder, f"{name}.json")) as file:
        kept = json.load(file)
    losses, tensors, _ = train(name, run, torch.float64)
    if kept["optimizer"] != optimizer_text(run) or kept["batch"] != run["batch"]:
        return "the file is of another run"
    if strays(kept["losses"], losses) > 1e-6:
        return f"losses stray by {strays(kept['losses'], losses):.1e}"
    if len(kept["tensors"]) != len(tensors):
        return "the file has other tensors"
    for old, new in zip(kept["tensors"], tensors):
        if any(old[key] != new[key] for key in ("name", "shape", "base", "bound", "is_buffer")):
            return f"{old['name']} is now another tensor: {new}"
        keys = [key for key in ("gradient_norm", "norm") if key in new and not (key == "norm" and old["is_noise"])]
        if any(abs(old[key] / new[key] - 1) > 1e-5 for key in keys):
            return f"{old['name']} has another gradient or end"
    return None


def main():
    words = sys.argv[1:]
    is_check = words[:1] == ["--check"]
    words = words[is_check:]
    if not words:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    wrong = 0
    for name in words[1:] or RUNS:
        if is_check:
            difference = differs(name, RUNS[name], words[0])
            print(f"{name}: {difference or 'as kept'}", flush=True)
            wrong += difference is not None
            continue
        text = text_of(golden_of(name, RUNS[name]))
        with open(os.path.join(words[0], f"{name}.json"), "w") as file:
            file.write(text)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
