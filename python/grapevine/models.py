"""PyTorch twins of our presets: the one home of them, for members of a swarm with native peers, the parity test and the
benchmarks.

Every layer is registered in the order of our layer list (in a residual block the main branch, then
the shortcut's), so that numbering the modules per kind as they come gives our tensor names: see
tensors(). Batch norm: momentum 0.1, eps 1e-5. Layer norm: eps 1e-5. GELU: the exact one.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """conv3x3 bn relu conv3x3 bn, plus what came in, relu. A block that halves the image and widens
    has a shortcut without parameters (CIFAR's option A: every second pixel, new channels zero, at
    the end) or a projection (conv1x1 bn)."""

    def __init__(self, come, go, stride, is_projected):
        super().__init__()
        self.conv1 = nn.Conv2d(come, go, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(go)
        self.conv2 = nn.Conv2d(go, go, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(go)
        self.stride, self.wider = stride, go - come
        self.shortcut = None
        if is_projected and (stride != 1 or come != go):
            self.shortcut = nn.Sequential(nn.Conv2d(come, go, 1, stride, bias=False), nn.BatchNorm2d(go))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.wider:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.wider))
        return F.relu(y + x, inplace=True)


def resnet(channels, classes, widths, blocks, is_projected):
    layers = [nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
    come = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(come, width, 2 if stage and not block else 1, is_projected))
            come = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(come, classes))


class Positions(nn.Module):
    """x + a learned vector per position."""

    def __init__(self, context, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(context, width))

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


class Attention(nn.Module):
    """Causal multi-head attention; rows of qkv: all queries, all keys, all values, each by head.
    Written in the form that is fastest in PyTorch 1.13 on a CPU (measured against three others)."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("mask", torch.full((context, context), -math.inf).triu(1), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        each = width // self.heads
        parts = self.qkv(x).view(batch, length, 3, self.heads, each).permute(2, 0, 3, 1, 4)
        q, k, v = parts.reshape(3, batch * self.heads, length, each).unbind(0)
        mask = self.mask[:length, :length].to(q.dtype)
        score = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=each**-0.5)
        mixed = (score.softmax(-1) @ v).view(batch, self.heads, length, each)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class Added(nn.Module):
    """x + layers(x)"""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def gpt(symbols, blocks, heads, width, context):
    layers = [nn.Embedding(symbols, width), Positions(context, width)]
    for _ in range(blocks):
        layers.append(Added(nn.LayerNorm(width), Attention(width, heads, context)))
        layers.append(Added(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)))
    return nn.Sequential(*layers, nn.LayerNorm(width), nn.Linear(width, symbols, bias=False))


class Lstm(nn.Module):
    """Next-symbol model; the state is zero at the start of every sequence."""

    def __init__(self, symbols, width, layers):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def mlp(classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, classes)
    )


def cnn(classes):
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, classes)
    )


SYMBOLS = 73  # of the King James text

# name: builder, shape of a sample (images) or its length (sequences), classes or symbols
MODELS = {
    "mlp": (mlp, (1, 28, 28), 10),
    "cnn": (cnn, (1, 28, 28), 10),
    "resnet14": (lambda classes: resnet(1, classes, (16, 32, 64), 2, False), (1, 28, 28), 10),
    "resnet20": (lambda classes: resnet(3, classes, (16, 32, 64), 3, False), (3, 32, 32), 10),
    "resnet18": (lambda classes: resnet(3, classes, (64, 128, 256, 512), 2, True), (3, 32, 32), 10),
    "lstm": (lambda symbols: Lstm(symbols, 256, 2), 64, SYMBOLS),
    "gpt-nano": (lambda symbols: gpt(symbols, 4, 4, 128, 128), 128, SYMBOLS),
}


def build(name):
    make, _, classes = MODELS[name]
    model = make(classes)
    if name == "gpt-nano":
        assert sum(p.numel() for p in model.parameters()) == 828416
    return model


# Of bytes / 255, by channel: mean and deviation that native peers normalise by (docs/training.md). Models whose inputs are
# scaled otherwise are other models: their mean is worse than each.
NORMAL = {
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "idx": ((0.5,), (0.5,)),
}


def normalised(images, data):
    """Bytes [..., channels, height, width] as float32, as native peers normalise those of `data`."""
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in NORMAL[data.partition(":")[0]])
    return (images.float() / 255 - mean) / deviation


def is_sequence(name):
    return isinstance(MODELS[name][1], int)


def loss_of(logits, labels):
    """Mean softmax cross-entropy over all rows: samples, or positions of all sequences."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


KINDS = {
    nn.Conv2d: "conv", nn.BatchNorm2d: "bn", nn.Linear: "dense", nn.Embedding: "embed", nn.LayerNorm: "ln",
    Positions: "positions", Attention: "attention",
}


def tensors(model):
    """[(our name, theirs, tensor, is a buffer)] in the order of our schema."""
    result, counts = [], {}

    def number(kind):
        counts[kind] = counts.get(kind, 0) + 1
        return f"{kind}{counts[kind]}"

    def add(ours, theirs, tensor, is_buffer=False):
        if tensor is not None:
            result.append((ours, theirs, tensor, is_buffer))

    inside = None  # prefix of an attention: its two linear layers belong to it
    for path, module in model.named_modules():
        if inside is not None and path.startswith(inside):
            continue
        if isinstance(module, nn.LSTM):
            for layer in range(module.num_layers):
                name = number("lstm")
                for ours, theirs in (("weight_input", "weight_ih"), ("weight_hidden", "weight_hh"),
                                     ("bias_input", "bias_ih"), ("bias_hidden", "bias_hh")):
                    theirs = f"{theirs}_l{layer}"
                    add(f"{name}.{ours}", f"{path}.{theirs}", getattr(module, theirs))
            continue
        if type(module) not in KINDS:
            continue
        name = number(KINDS[type(module)])
        if isinstance(module, Attention):
            inside = path + "."
            for part in ("qkv", "output"):
                linear = getattr(module, part)
                add(f"{name}.{part}.weight", f"{path}.{part}.weight", linear.weight)
                add(f"{name}.{part}.bias", f"{path}.{part}.bias", linear.bias)
            continue
        add(f"{name}.weight", f"{path}.weight", module.weight)
        add(f"{name}.bias", f"{path}.bias", getattr(module, "bias", None))
        if isinstance(module, nn.BatchNorm2d):
            add(f"{name}.running_mean", f"{path}.running_mean", module.running_mean, True)
            add(f"{name}.running_variance", f"{path}.running_var", module.running_var, True)
    assert sum(t.numel() for _, _, t, is_buffer in result if not is_buffer) == sum(p.numel() for p in model.parameters())
    return result


if __name__ == "__main__":
    for model_name in MODELS:
        print(model_name, sum(p.numel() for p in build(model_name).parameters()))
        for ours_, theirs_, tensor_, is_buffer_ in tensors(build(model_name)):
            print(f"    {ours_:30} {theirs_:36} {tuple(tensor_.shape)}{' (buffer)' if is_buffer_ else ''}")
