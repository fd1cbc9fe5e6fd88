"""A network on Fashion-MNIST, trained by whoever joins: PyTorch peers, and native ones of the same model.

    python3 fashion_mnist.py 0 2 --listen 127.0.0.1:7077 --start-with 2
    python3 fashion_mnist.py 1 2 --bootstrap 127.0.0.1:7077 --start-with 2
    grapevine peer --data fashion-mnist --model mlp --bootstrap 127.0.0.1:7077 --steps 300      # may join, too

The first two numbers: which part of how many this peer trains on. More flags: those of `grapevine peer`.
"""
import gzip
import sys

import numpy
import torch
from torch.nn import functional as F

import grapevine
from grapevine import models

FOLDER = "/usr/share/datasets/fashion-mnist"


def read(part):
    def numbers(kind, offset):
        with gzip.open(f"{FOLDER}/{part}-{kind}-ubyte.gz") as file:
            return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=offset).copy())

    images = models.normalised(numbers("images-idx3", 16).view(-1, 1, 28, 28), "fashion-mnist")
    return images, numbers("labels-idx1", 8).long()


def main():
    mine, parts = int(sys.argv[1]), int(sys.argv[2])
    flags = {k.lstrip("-").replace("-", "_"): v for k, v in zip(sys.argv[3::2], sys.argv[4::2])}
    settings = {"model": "mlp", "data": "fashion-mnist", "averaging": "local-sgd:H=16", "steps": 300, **flags}
    torch.manual_seed(mine)
    torch.set_num_threads(1)
    x, y = (values[mine::parts] for values in read("train"))
    model = models.build(settings["model"])
    swarm = grapevine.join(**settings)
    optimizer = swarm.wrap(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model)
    with swarm.training(model, optimizer):
        while not swarm.is_over:  # at the goal its last round is in the model
            pick = torch.randint(len(y), (64,))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[pick]), y[pick])
            loss.backward()
            swarm.loss(loss)
            optimizer.step()
        rounds = swarm.status.rounds_ok
    model.eval()
    x, y = read("t10k")
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {right:.4f} rounds {rounds}", flush=True)


if __name__ == "__main__":
    main()
