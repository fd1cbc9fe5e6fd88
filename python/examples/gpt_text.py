"""A small GPT on a text by bytes, with DiLoCo: many steps alone, then one outer step together.

    python3 gpt_text.py book.txt 100 --listen 127.0.0.1:7077 --start-with 2
    python3 gpt_text.py book.txt 100 --bootstrap 127.0.0.1:7077 --start-with 2

Gradients of two small batches make one step; the rate follows the swarm's step, also of who joins late.
"""
import sys

import torch

import grapevine
from grapevine import models

SYMBOLS, CONTEXT, WARM_UP = 256, 64, 20


def main():
    text, steps = open(sys.argv[1], "rb").read(), int(sys.argv[2])
    flags = {k.lstrip("-").replace("-", "_"): v for k, v in zip(sys.argv[3::2], sys.argv[4::2])}
    tokens = torch.tensor(list(text), dtype=torch.long)
    torch.set_num_threads(1)
    model = models.gpt(SYMBOLS, 2, 2, 32, CONTEXT)
    swarm = grapevine.join(**{"averaging": "diloco:H=20", **flags})
    optimizer = swarm.wrap(torch.optim.AdamW(model.parameters(), lr=3e-3), model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: min(1.0, (swarm.step + 1) / WARM_UP))
    first = last = 0.0
    with swarm.training(model, optimizer):
        for step in range(steps):
            optimizer.zero_grad()
            for _ in range(2):
                at = torch.randint(len(tokens) - CONTEXT - 1, (8,))
                batch = torch.stack([tokens[i:i + CONTEXT + 1] for i in at])
                # On a GPU: with torch.autocast("cuda"), and a GradScaler around backward() and step() as ever.
                loss = models.loss_of(model(batch[:, :-1]), batch[:, 1:])
                (loss / 2).backward()
            last = loss.item()
            first = first or last
            swarm.loss(last)
            optimizer.step()
            schedule.step()
        rounds = swarm.status.rounds_ok
    print(f"loss {first:.3f} to {last:.3f} rounds {rounds}", flush=True)


if __name__ == "__main__":
    main()
