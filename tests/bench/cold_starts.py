#!/usr/bin/env python3
"""Cold starts with real processes: sixteen peers in random order, the first address of every list
dead in half of the runs. Says how many runs became one swarm, and how long after the last start
all were linked and the first round was averaged.

    tests/bench/cold_starts.py [--runs 20] [--peers 16] [--seed 1] [--limit 60] EXECUTABLE

Exit 1 if a run did not become one swarm within the limit. A run is over when every peer is linked with
all others and has averaged. Peers are paced to 20 steps a second, so that a machine with fewer cores
than peers is not busy with training alone.
"""
import argparse
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_ports(count):
    """Below those that the kernel gives to outgoing connections, which could take one meanwhile."""
    ports = []
    for port in random.SystemRandom().sample(range(20000, 32000), 12000):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    sys.exit("cold_starts.py: not enough free ports from 20000 to 32000")


class Peer:
    def __init__(self, executable, address, bootstrap, folder):
        self.neighbours = self.rounds = 0
        self.linked_at = self.averaged_at = None
        self.rest = b""
        command = [executable, "peer", "--data", "digits", "--model", "mlp", "--json",
                   "--listen", address, "--bootstrap", bootstrap, "--out", folder,
                   "--report-every", "100ms", "--steps", "100000000",
                   "--averaging", "local-sgd:H=16", "--step-time", "50ms", "--threads", "1"]
        self.errors = open(folder + ".err", "wb")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors,
                                        preexec_fn=lambda: os.nice(10))
        os.set_blocking(self.process.stdout.fileno(), False)

    def read(self, others):
        """Takes what it has said; False at its end."""
        data = self.process.stdout.read()
        if data is None:
            return True
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            now = time.monotonic()
            self.neighbours = said.get("neighbours", self.neighbours)
            self.rounds = said.get("rounds_ok", self.rounds)
            if not isinstance(self.neighbours, int):
                self.neighbours = len(self.neighbours)
            if self.neighbours >= others and self.linked_at is None:
                self.linked_at = now
            if self.rounds > 0 and self.averaged_at is None:
                self.averaged_at = now
        return len(data) > 0


def read_all(peers, selector, others, until, is_done):
    while not is_done():
        left = until - time.monotonic()
        if left <= 0:
            return False
        for key, _ in selector.select(left):
            if not key.data.read(others):
                selector.unregister(key.fileobj)
    return True


def run(options, number, chance):
    """One cold start. (is it one swarm, seconds to linked, seconds to averaged)."""
    has_dead_first = number % 2 == 1
    ports = free_ports(options.peers + 1)
    known = [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"]
    if has_dead_first:
        known.insert(0, f"127.0.0.1:{ports[-1]}")
    order = list(range(options.peers))
    chance.shuffle(order)
    peers, selector, others = [], selectors.DefaultSelector(), options.peers - 1
    with tempfile.TemporaryDirectory() as folder:
        try:
            for index in order:
                peer = Peer(options.executable, f"127.0.0.1:{ports[index]}", ",".join(known),
                            os.path.join(folder, str(index)))
                peers.append(peer)
                selector.register(peer.process.stdout, selectors.EVENT_READ, peer)
                read_all(peers, selector, others, time.monotonic() + chance.uniform(0, 0.3),
                         lambda: False)
            begun = time.monotonic()
            is_one = read_all(peers, selector, others, begun + options.limit,
                              lambda: all(p.linked_at and p.averaged_at for p in peers))
            if not is_one:
                for peer in peers:
                    print(f"  {peer.process.args[8]}: {peer.neighbours} neighbours, "
                          f"{peer.rounds} rounds, ended: {peer.process.poll()}")
                    if peer.process.poll() is not None:
                        print(open(peer.errors.name).read())
                return False, 0.0, 0.0
            return (True, max(p.linked_at for p in peers) - begun,
                    min(p.averaged_at for p in peers) - begun)
        finally:
            for peer in peers:
                peer.process.send_signal(signal.SIGKILL)
                peer.process.wait()
                peer.process.stdout.close()
                peer.errors.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("executable")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--peers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    linked, averaged, failed = [], [], 0
    for number in range(options.runs):
        is_one, linked_s, averaged_s = run(options, number, chance)
        failed += not is_one
        if is_one:
            linked.append(linked_s)
            averaged.append(averaged_s)
            print(f"run {number + 1}: one swarm after {linked_s:.2f} s, "
                  f"first round {averaged_s:+.2f} s from the last start", flush=True)
        else:
            print(f"run {number + 1}: not one swarm in {options.limit:.0f} s", flush=True)
    if linked:
        linked.sort()
        averaged.sort()
        print(f"{len(linked)} of {options.runs} became one swarm; linked after "
              f"{linked[len(linked) // 2]:.2f} s (median), {linked[-1]:.2f} s (worst); first round "
              f"{averaged[len(averaged) // 2]:+.2f} s (median), {averaged[-1]:+.2f} s (worst) from "
              "the last start")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
