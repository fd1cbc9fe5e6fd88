#!/usr/bin/python3
"""What a swarm costs a loop in PyTorch: the hook behind a step that finds nothing to do, and samples a second beside rounds.

    library_cost.py hook                               microseconds a step
    library_cost.py pair MODEL AVERAGING STEPS RUNS    two processes, a core each, with and without a swarm, in turn

LIBGRAPEVINE names the library; tests/bench/library_cost.sh runs both. A process has one core for all of its threads. The
second figure is by processor time of the whole process, and tells something on a busy machine, too.
"""
import multiprocessing
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
from torch.nn import functional as F

import grapevine
from grapevine import models

SAMPLES = {"mlp": (1, 28, 28), "cnn": (1, 28, 28)}


def hook():
    """By the difference to the same loop before: an optimizer whose step does nothing."""

    class Nothing(torch.optim.Optimizer):
        def step(self, closure=None):
            return None

    torch.set_num_threads(1)
    model = torch.nn.Linear(300, 300)
    optimizer = Nothing(model.parameters(), {})

    def loop():
        times = []
        for _ in range(20000):
            begin = time.perf_counter_ns()
            optimizer.step()
            times.append((time.perf_counter_ns() - begin) / 1e3)
        return statistics.median(times), sum(times) / len(times)

    alone = loop()
    swarm = grapevine.join(averaging="none", listen="127.0.0.1:0")
    swarm.wrap(optimizer, model)
    with_it = loop()
    swarm.close()
    print(f"a step that does nothing: {alone[0]:.2f} us, with the hook {with_it[0]:.2f} us (medians); "
          f"the hook {with_it[0] - alone[0]:.2f} us, {with_it[1] - alone[1]:.2f} us by the mean, ends of series included")


def train(number, name, averaging, address, told, barrier, count, results):
    os.sched_setaffinity(0, {number % os.cpu_count()})
    torch.set_num_threads(1)
    torch.manual_seed(number)
    x, y = torch.randn(4096, *SAMPLES[name]), torch.randint(10, (4096,))
    model = models.build(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    swarm = None
    if averaging is not None:
        swarm = grapevine.join(averaging=averaging, listen=address if number == 0 else "127.0.0.1:0",
                               bootstrap=None if number == 0 else address, start_with=2)
        if number == 0:
            told.set()
        else:
            told.wait()
        swarm.wrap(optimizer, model)

    def steps(count):
        for _ in range(count):
            pick = torch.randint(len(y), (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[pick]), y[pick]).backward()
            optimizer.step()

    steps(32)
    barrier.wait()
    begin, before = time.perf_counter(), time.process_time()
    rounds = swarm.status.rounds_ok if swarm else 0
    steps(count)
    busy, wall = time.process_time() - before, time.perf_counter() - begin
    rounds = swarm.status.rounds_ok - rounds if swarm else 0
    results.put((64 * count / wall, 64 * count / busy, rounds))
    barrier.wait()
    if swarm:
        swarm.close()


def pair_once(name, averaging, count):
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results, told, barrier = context.SimpleQueue(), context.Event(), context.Barrier(2)
    both = [context.Process(target=train, args=(i, name, averaging, address, told, barrier, count, results)) for i in range(2)]
    for one in both:
        one.start()
    found = [results.get() for _ in both]
    for one in both:
        one.join()
    return [sum(values) / 2 for values in zip(*found)]


def pair(name, averaging, count, runs):
    without, beside = [], []
    for _ in range(runs):
        without.append(pair_once(name, None, count))
        beside.append(pair_once(name, averaging, count))
    a, b = ([statistics.median(column) for column in zip(*rows)] for rows in (without, beside))
    print(f"{name}, {averaging}: {a[0]:.0f} samples/s without, {b[0]:.0f} with {b[2]:.0f} rounds in {count} steps: "
          f"{b[0] / a[0]:.3f}; by processor time {b[1] / a[1]:.3f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "hook":
        hook()
    else:
        pair(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
