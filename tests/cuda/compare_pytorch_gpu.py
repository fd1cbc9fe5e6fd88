#!/usr/bin/env python3
"""Training speed of PyTorch on a GPU, on the models of `grapevine bench train`: one JSON line.

    compare_pytorch_gpu.py MODEL BATCH SECONDS [--precision f32|bf16] [--warm]
    compare_pytorch_gpu.py --check        the twins' parameters, on the processor

--warm: compiled forms only, for PyTorch's cache of them on disk.

A step is what ours is: a batch from page-locked host memory, forward, cross-entropy, backward,
optimizer. PyTorch gets the best of what it offers, each tried on this card in this run until SIGTERM
says that the time is up: as it is; the whole step as one CUDA graph; compiled (reduce-overhead, which
records graphs of its own); compiled (max-autotune-no-cudagraphs) and then the whole step as one graph,
or without where that fails. bfloat16 by autocast with float32 parameters, which is what ours computes, and with everything in bfloat16,
which is less exact. Images channels-last; fused optimizers; attention by
scaled_dot_product_attention. float32 is float32, not TF32, on both sides. Speed: the median over
windows, each begun and ended with an idle card.
"""
import argparse
import json
import os
import signal
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "grapevine"))

OPTIMIZERS = {"gpt2-small": "adamw", "gpt-nano": "adamw", "lstm": "adam"}  # others: momentum
WINDOW = 0.15  # seconds


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("batch", nargs="?", type=int)
    parser.add_argument("seconds", nargs="?", type=float)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.check and args.seconds is None:
        parser.error("MODEL BATCH SECONDS, or --check")
    return args


# --- the twins -----------------------------------------------------------------------------------

def use_fused_attention(models):
    """The twin of tests/parity, with PyTorch's fused kernel in place of its formula."""
    from torch.nn import functional as F

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))

    models.Attention.forward = forward


def gpt2_small(models):
    """GPT-2's form: gelu by tanh, the head tied to the embedding."""
    from torch import nn

    model = models.gpt(50257, 12, 12, 768, 1024)
    for added in model:
        if isinstance(added, models.Added):
            for i, layer in enumerate(added.layers):
                if isinstance(layer, nn.GELU):
                    added.layers[i] = nn.GELU(approximate="tanh")
    model[-1].weight = model[0].weight
    return model


def build(models, name):
    """The model, the shape of a sample or the length of a sequence, and the classes."""
    if name == "gpt2-small":
        return gpt2_small(models), 1024, 50257
    return models.build(name), *models.MODELS[name][1:]


def check():
    import models

    for name in [*models.MODELS, "gpt2-small"]:
        model, shape, classes = build(models, name)
        print(name, sum(p.numel() for p in model.parameters()), shape, classes)


# --- one way of training ---------------------------------------------------------------------------

class Trainer:
    """A model, its batch on the host and on the card, and an optimizer."""

    def __init__(self, name, batch, form, compiled):
        import torch
        import models

        torch.manual_seed(1)
        model, shape, classes = build(models, name)
        is_text = isinstance(shape, int)
        model = model.cuda()
        if is_text:
            x = torch.randint(0, classes, (batch, shape))
            y = torch.randint(0, classes, (batch, shape))
        else:
            x = torch.rand(batch, *shape) * 2 - 1
            y = torch.randint(0, classes, (batch,))
            if name != "mlp":
                model = model.to(memory_format=torch.channels_last)
                x = x.contiguous(memory_format=torch.channels_last)
        if form == "pure bf16":
            model = model.to(torch.bfloat16)
            x = x if is_text else x.to(torch.bfloat16)
        self.torch, self.loss_of = torch, models.loss_of
        self.is_autocast = form == "autocast"
        self.host = [x.pin_memory(), y.pin_memory()]
        self.batch = [x.cuda(), y.cuda()]
        self.parameters = sum(p.numel() for p in model.parameters())
        self.values = list(model.parameters())
        self.optimizer = self.make_optimizer(OPTIMIZERS.get(name, "momentum"))
        self.loss = self.forward if compiled is None else torch.compile(self.forward, mode=compiled)
        self.model = model

    def make_optimizer(self, kind):
        optim = self.torch.optim
        if kind == "momentum":
            return optim.SGD(self.values, lr=0.01, momentum=0.9, fused=True)
        if kind == "adam":
            return optim.Adam(self.values, lr=0.001, fused=True, capturable=True)
        return optim.AdamW(self.values, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True, capturable=True)

    def forward(self, x, y):
        # No cache of cast weights: it does not outlive a step, and a graph must not have it.
        with self.torch.autocast("cuda", dtype=self.torch.bfloat16, enabled=self.is_autocast, cache_enabled=False):
            return self.loss_of(self.model(x), y)

    def load(self):
        for there, here in zip(self.batch, self.host):
            there.copy_(here, non_blocking=True)

    def compute(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(*self.batch).backward()
        self.optimizer.step()

    def step(self):
        self.load()
        self.compute()

    def recorded(self):
        """The whole step as one CUDA graph; the batch is copied in front of it."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.compute()

        def step():
            self.load()
            graph.replay()

        return step


def measure(torch, step, seconds):
    """Steps a second, one figure a window."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    each = max(1, int(WINDOW / max(time.perf_counter() - begin, 1e-6)))
    rates, end = [], time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(each):
            step()
        torch.cuda.synchronize()
        rates.append(each / (time.perf_counter() - begin))
    return rates


# The cheap ones first, as the time may end. Recurrent layers are not compiled: they are the library's
# either way.
def settings(name, precision, is_warm):
    forms = ("autocast", "pure bf16") if precision == "bf16" else ("f32",)
    ways = [] if is_warm else [("eager", None, False), ("graph", None, True)]
    if name != "lstm":
        ways += [
            ("compiled, reduce-overhead", "reduce-overhead", False),
            ("compiled, max-autotune-no-cudagraphs, graph", "max-autotune-no-cudagraphs", True),
        ]
    return [(f"{form}, {way}", form, compiled, is_graph) for way, compiled, is_graph in ways for form in forms]


def try_one(torch, args, form, compiled, is_graph):
    """Steps a second in each window, the number of parameters, and whether the graph failed."""
    trainer = Trainer(args.model, args.batch, form, compiled)
    if is_graph and compiled is not None:
        trainer.step()  # what fails here is no matter of graphs
    try:
        step, is_plain = (trainer.recorded() if is_graph else trainer.step), False
    except Exception:
        if compiled is None:
            raise
        torch.cuda.synchronize()
        trainer = Trainer(args.model, args.batch, form, compiled)
        step, is_plain = trainer.step, True
    return measure(torch, step, args.seconds), trainer.parameters, is_plain


class Stopped(BaseException):
    """The caller's patience has ended; what was measured so far counts."""


def on_stop(*_):
    raise Stopped()


def main():
    args = arguments()
    if args.check:
        check()
        return
    import torch
    import models

    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    use_fused_attention(models)
    signal.signal(signal.SIGTERM, on_stop)
    tried, failed, rates, best, parameters = {}, {}, {}, None, 0
    is_late = False
    for name, form, compiled, is_graph in settings(args.model, args.precision, args.warm):
        if is_late:
            failed[name] = "not tried: the time was up"
            continue
        try:
            found, parameters, is_plain = try_one(torch, args, form, compiled, is_graph)
            name = name.removesuffix(", graph") if is_plain else name
            rates[name] = found
            tried[name] = statistics.median(rates[name])
            print(f"{args.model} {args.precision}: {name}: {tried[name]:.1f} steps/s", file=sys.stderr)
        except Stopped:
            failed[name] = "stopped: the time was up"
            is_late = True
            continue
        except Exception as error:  # one way that does not work is no reason not to try the others
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            print(f"{args.model} {args.precision}: {name}: {failed[name]}", file=sys.stderr)
        torch.compiler.reset()
        torch.cuda.empty_cache()
    if not tried:
        sys.exit("PyTorch could do none of it")
    best = max(tried, key=lambda name: tried[name])
    length = models.MODELS[args.model][1] if args.model in models.MODELS else 1024
    is_text = isinstance(length, int)
    scale = args.batch * (length if is_text else 1)
    per_s = sorted(rate * scale for rate in rates[best])
    quarters = statistics.quantiles(per_s, n=4) if len(per_s) > 1 else [per_s[0]] * 3
    print(json.dumps({
        "model": args.model, "batch": args.batch, "precision": args.precision,
        "device": torch.cuda.get_device_name(), "unit": "tokens" if is_text else "samples",
        "per_s": statistics.median(per_s), "q1": quarters[0], "q3": quarters[2], "parameters": parameters,
        "setting": best, "tried": {name: rate * scale for name, rate in tried.items()}, "failed": failed,
        "version": torch.__version__,
    }))


if __name__ == "__main__":
    main()
