#!/usr/bin/python3
"""Data-parallel training with PyTorch over gloo on this machine: one JSON line.

    swarm_pytorch.py one|ddp|local --ranks N --model cnn --lr 0.02 --every 16 --samples 300000 [--target 0.9]
    swarm_pytorch.py local --ranks 2 --model mlp --seconds 5            # speed alone, made-up batches

ddp is DistributedDataParallel; local averages all parameters every so many steps, momentum stays
local (Stich 2018). One thread and a batch of 64 a rank; every rank reads its own part of Fashion-MNIST.
`seconds` are of training alone: evaluations (of the averaged model, the test set dealt out to all ranks)
and the start of the processes are not in them. `bytes_per_rank` is what a ring all-reduce sends.
"""
import argparse
import gzip
import json
import os
import sys
import tempfile
import time

# Its best setting here, as in compare_pytorch.py (an allocator that keeps what it freed is worth 30 % for cnn);
# read when a process starts, before any line of it runs.
BEST = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
}
FLAT = ("mlp",)  # reads images as vectors
FOLDER = "/usr/share/datasets/fashion-mnist"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=("one", "ddp", "local"))
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--every", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=600000, help="of all ranks together")
    parser.add_argument("--target", type=float, default=2.0, help="stop at this test accuracy")
    parser.add_argument("--evaluate-every", type=int, default=6400, help="samples of all ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="measure speed for so long instead")
    return parser.parse_args()


def read(name, offset):
    import numpy

    with gzip.open(f"{FOLDER}/{name}-ubyte.gz") as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=offset)


def images(part):
    """Normalised as ours are."""
    import torch
    import models

    x = models.normalised(torch.from_numpy(read(f"{part}-images-idx3", 16).copy()).view(-1, 1, 28, 28), "fashion-mnist")
    return x, torch.from_numpy(read(f"{part}-labels-idx1", 8).copy()).long()


def average(model, ranks):
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        plane = torch.cat([p.reshape(-1) for p in model.parameters()])
        dist.all_reduce(plane)
        plane /= ranks
        for p, mean in zip(model.parameters(), plane.split([p.numel() for p in model.parameters()])):
            p.copy_(mean.view(p.shape))


def accuracy(model, x, y, ranks):
    """On the whole test set, of which this rank has x and y."""
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        hits = sum(int((model(x[i:i + 500]).argmax(1) == y[i:i + 500]).sum()) for i in range(0, len(y), 500))
    counts = torch.tensor([hits, len(y)], dtype=torch.float64)
    if ranks > 1:
        dist.all_reduce(counts)
    return float(counts[0] / counts[1])


class Batches:
    """This rank's part of the data, shuffled anew each epoch; made-up batches when speed is measured."""

    def __init__(self, args, rank):
        import torch
        import models

        self.batch, self.at = args.batch, 0
        self.random = torch.Generator().manual_seed(1000 * args.seed + rank)
        _, shape, classes = models.MODELS[args.model]
        if args.seconds == 0:
            x, y = images("train")
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(args.seed))
            mine = order[rank::args.ranks]
            self.x, self.y = x[mine], y[mine]
        elif models.is_sequence(args.model):
            self.x = torch.randint(0, classes, (10 * args.batch, shape))
            self.y = torch.randint(0, classes, (10 * args.batch, shape))
        else:
            self.x = torch.rand(10 * args.batch, *shape) * 2 - 1
            self.y = torch.randint(0, classes, (10 * args.batch,))
        self.order = torch.randperm(len(self.y), generator=self.random)

    def next(self):
        import torch

        if self.at + self.batch > len(self.y):
            self.order, self.at = torch.randperm(len(self.y), generator=self.random), 0
        pick = self.order[self.at:self.at + self.batch]
        self.at += self.batch
        return self.x[pick], self.y[pick]


def run(rank, args, meeting):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "grapevine"))
    import torch
    import torch.distributed as dist
    import models

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=args.ranks)
    torch.manual_seed(args.seed)
    model = models.build(args.model)
    if args.model not in FLAT and not models.is_sequence(args.model):
        model = model.to(memory_format=torch.channels_last)  # 5 to 10 % quicker here than its plain layout
    if models.is_sequence(args.model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    shell = torch.nn.parallel.DistributedDataParallel(model) if args.method == "ddp" else model
    batches = Batches(args, rank)
    # Every rank judges its part of the test set: nobody's clock runs meanwhile, and it is over sooner.
    test = [part[rank::args.ranks] for part in images("t10k")] if args.seconds == 0 else None
    evaluate_steps = max(1, args.evaluate_every // (args.batch * args.ranks))
    result = torch.zeros(2, dtype=torch.float64)
    step, exchanges, seconds, curve = 0, 0, 0.0, []
    if args.ranks > 1:
        dist.barrier()
    begun = time.monotonic()
    while True:
        x, y = batches.next()
        optimizer.zero_grad(set_to_none=True)
        models.loss_of(shell(x), y).backward()
        optimizer.step()
        step += 1
        exchanges += args.method == "ddp"
        if args.method == "local" and step % args.every == 0:
            average(model, args.ranks)
            exchanges += 1
        done = step * args.batch * args.ranks
        if args.seconds > 0:
            if step % 16:
                continue
            result[1] = float(seconds + time.monotonic() - begun >= args.seconds)
            if args.ranks > 1:
                dist.broadcast(result, 0)
            if result[1]:
                break
            continue
        if step % evaluate_steps and done < args.samples:
            continue
        if args.method == "local" and step % args.every:
            average(model, args.ranks)  # what is judged is the average; counted, as it does happen
            exchanges += 1
        seconds += time.monotonic() - begun
        result[0] = accuracy(model, *test, args.ranks)
        result[1] = float(result[0] >= args.target or done >= args.samples)
        curve.append((done, round(seconds, 3), float(result[0])))
        if args.ranks > 1:
            dist.barrier()
        begun = time.monotonic()
        if result[1]:
            break
    if args.seconds > 0:
        seconds = time.monotonic() - begun
    plane = 4 * sum(p.numel() for p in model.parameters())
    if rank == 0:
        print(json.dumps({
            "method": args.method, "ranks": args.ranks, "model": args.model, "lr": args.lr, "seed": args.seed,
            "every": args.every if args.method == "local" else 1, "steps": step, "samples": done,
            "seconds": round(seconds, 3), "samples_per_s": done / seconds, "accuracy": float(result[0]),
            "is_reached": bool(result[0] >= args.target), "rounds": exchanges, "curve": curve,
            "bytes_per_rank": int(2 * (args.ranks - 1) / args.ranks * plane * exchanges), "version": torch.__version__,
        }))


def main():
    args = arguments()
    if any(os.environ.get(key) != value for key, value in BEST.items()):
        os.environ.update(BEST)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if args.ranks == 1:
        run(0, args, "")
        return
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(args, folder + "/meeting"), nprocs=args.ranks)


if __name__ == "__main__":
    main()
