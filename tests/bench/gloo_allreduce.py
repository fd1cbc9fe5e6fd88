# What gloo takes to average a plane of float32 between two processes over loopback: all_reduce, then
# a division, as a program that averages parameters would do it. Prints the median of the seconds.
#   /usr/bin/python3 tests/bench/gloo_allreduce.py VALUES ROUNDS
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, path, values, rounds):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    plane = torch.full((values,), float(rank))
    seconds = []
    for i in range(rounds + 2):
        dist.barrier()
        begun = time.monotonic()
        dist.all_reduce(plane)
        took = time.monotonic() - begun
        plane /= 2
        if i >= 2:
            seconds.append(took)
    if rank == 0:
        assert torch.all(plane == 0.5)
        print("%.6f %.6f" % (statistics.median(seconds), min(seconds)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(folder + "/meeting", int(sys.argv[1]), int(sys.argv[2])), nprocs=2)
