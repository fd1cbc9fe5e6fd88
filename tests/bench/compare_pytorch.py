#!/usr/bin/python3
"""Training speed of PyTorch on the models of `grapevine bench train`: one JSON line.

    compare_pytorch.py MODEL BATCH THREADS SECONDS [--precision f32|bf16] [--forward]

A step is what ours is: forward, cross-entropy, backward, optimizer, on one made-up batch that stays
in memory. PyTorch gets its best setting: an allocator that keeps big tensors mapped, threads that
wait passively, the widest vectors, and of the memory layouts and optimizer loops that it offers
those that a short trial finds fastest here. --forward: the forward pass alone, in evaluation mode
under inference_mode. bf16 is autocast. Speed: the median over chunks.
The optimizers are those of OPTIMIZERS below, on both sides.
"""
import argparse
import itertools
import json
import os
import re
import resource
import statistics
import sys
import time

BEST = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
}

# GRAPEVINE_CPU limits PyTorch as it limits us (kernels/README.md): its own loops, oneDNN, OpenBLAS or MKL.
LIMITS = {
    "baseline": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
                 "OPENBLAS_CORETYPE": "Prescott", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
               "OPENBLAS_CORETYPE": "SkylakeX", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "amx": {},
}

OPTIMIZERS = {
    "mlp": "momentum", "cnn": "momentum", "resnet14": "momentum", "resnet20": "momentum", "resnet18": "momentum",
    "gpt-nano": "adamw", "lstm": "adam",
}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=sorted(OPTIMIZERS))
    parser.add_argument("batch", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--forward", action="store_true")
    return parser.parse_args()


def kernels_of_openblas():
    """OpenBLAS of Debian 12 does not know Zen 5 and takes AVX2 kernels there, which halves its speed."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        return {"OPENBLAS_CORETYPE": "SkylakeX"} if " avx512f " in file.read() else {}


def run_again_in_best_environment(threads):
    """These are read when the process starts, before any line of it runs."""
    limit = os.environ.get("GRAPEVINE_CPU") or "amx"
    if limit not in LIMITS:
        sys.exit(f"GRAPEVINE_CPU={limit}: choose {', '.join(LIMITS)}")
    wanted = dict(BEST, OMP_NUM_THREADS=str(threads), **(LIMITS[limit] or kernels_of_openblas()))
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def make_optimizer(kind, model, foreach):
    import torch

    if kind == "momentum":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=foreach)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.001, foreach=foreach)
    return torch.optim.AdamW(
        model.parameters(), lr=0.001, betas=(0.9, 0.95), weight_decay=0.1, foreach=foreach
    )


def make_step(name, batch, precision, layout, foreach, is_forward):
    import torch
    import models

    torch.manual_seed(1)
    model = models.build(name)
    _, shape, classes = models.MODELS[name]
    if models.is_sequence(name):
        x = torch.randint(0, classes, (batch, shape))
        y = torch.randint(0, classes, (batch, shape))
    else:
        x = torch.rand(batch, *shape) * 2 - 1
        y = torch.randint(0, classes, (batch,))
        if layout == "channels_last":
            model = model.to(memory_format=torch.channels_last)
            x = x.contiguous(memory_format=torch.channels_last)
    is_bf16 = precision == "bf16"

    def forward():
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            model(x)

    if is_forward:
        model.eval()
        for _ in range(3):
            forward()
        return forward, sum(p.numel() for p in model.parameters())
    optimizer = make_optimizer(OPTIMIZERS[name], model, foreach)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            loss = models.loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    return step, sum(p.numel() for p in model.parameters())


def measure(step, seconds):
    """Steps per second, one figure a chunk."""
    rates, steps = [], 0
    begin = chunk = time.perf_counter()
    while True:
        step()
        steps += 1
        now = time.perf_counter()
        if now - chunk < seconds / 20:
            continue
        rates.append(steps / (now - chunk))
        chunk, steps = now, 0
        if now - begin >= seconds:
            return rates


def main():
    args = arguments()
    run_again_in_best_environment(args.threads)
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "grapevine"))
    import torch
    import models

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    has_images = not models.is_sequence(args.model)
    layouts = ("plain", "channels_last") if has_images and args.model != "mlp" else ("plain",)
    trials = {}
    for layout, foreach in itertools.product(layouts, (False,) if args.forward else (False, True)):
        step, parameters = make_step(args.model, args.batch, args.precision, layout, foreach, args.forward)
        trials[layout, foreach] = (statistics.median(measure(step, args.seconds / 4)), step)
    best = max(trials, key=lambda setting: trials[setting][0])
    rates = measure(trials[best][1], args.seconds)
    unit = "tokens" if models.is_sequence(args.model) else "samples"
    per_step = args.batch * (1 if has_images else models.MODELS[args.model][1])
    per_s = [rate * per_step for rate in rates]
    quarters = statistics.quantiles(per_s, n=4)
    print(json.dumps({
        "model": args.model, "batch": args.batch, "threads": args.threads, "precision": args.precision,
        "unit": unit, "per_s": statistics.median(per_s), "q1": quarters[0], "q3": quarters[2],
        "parameters": parameters,
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "setting": f"{best[0]}{', foreach' if best[1] else ''}",
        "tried": {f"{l}{', foreach' if f else ''}": t[0] * per_step for (l, f), t in trials.items()},
        "version": torch.__version__,
        "cpu": re.search(r"CPU capability usage: (.+)|$", torch.__config__.show()).group(1) or "unknown",
    }))


if __name__ == "__main__":
    main()
