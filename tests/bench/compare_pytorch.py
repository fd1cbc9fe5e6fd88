#!/usr/bin/python3
"""Training speed of PyTorch on the models of `grapevine bench train`: one JSON line.

The same step as ours: forward, cross-entropy, backward, SGD with momentum, on one made-up batch
that stays in memory. Speed is the median over chunks.
"""
import json
import resource
import statistics
import sys
import time

import torch
from torch import nn


def build(name):
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def main():
    name, batch, threads, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = build(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    x = torch.rand(batch, 1, 28, 28) * 2 - 1
    y = torch.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    rates = []
    begin = chunk = time.perf_counter()
    steps = 0
    while True:
        step()
        steps += 1
        now = time.perf_counter()
        if now - chunk < seconds / 20:
            continue
        rates.append(steps * batch / (now - chunk))
        chunk, steps = now, 0
        if now - begin >= seconds:
            break
    print(json.dumps({
        "model": name,
        "per_s": statistics.median(rates),
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "version": torch.__version__,
    }))


if __name__ == "__main__":
    main()
