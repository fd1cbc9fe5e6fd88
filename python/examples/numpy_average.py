"""NumPy, JAX or anything else: train as you like, and ask for a mean now and then.

    python3 numpy_average.py 0 --listen 127.0.0.1:7077 --start-with 2
    python3 numpy_average.py 1 --bootstrap 127.0.0.1:7077 --start-with 2

Arrays of JAX cannot be changed in place: average NumPy copies, and put them back:

    leaves, tree = jax.tree_util.tree_flatten(params)
    arrays = [numpy.array(leaf) for leaf in leaves]
    swarm.average(arrays)
    params = jax.tree_util.tree_unflatten(tree, arrays)
"""
import sys

import numpy

import grapevine


def main():
    mine = int(sys.argv[1])
    flags = {k.lstrip("-").replace("-", "_"): v for k, v in zip(sys.argv[2::2], sys.argv[3::2])}
    random = numpy.random.default_rng(mine)
    truth = numpy.array([1.0, -2.0, 3.0, 0.5], numpy.float32)
    # Each sees two of the four inputs vary; together they know all.
    x = random.normal(size=(200, 4)).astype(numpy.float32) * numpy.roll([1, 1, 0, 0], 2 * mine)
    y = x @ truth
    weights = numpy.zeros(4, numpy.float32)
    swarm = grapevine.join(**flags)
    rounds = 0
    for _ in range(60):
        for _ in range(5):
            weights -= numpy.float32(0.2) * (x.T @ (x @ weights - y)) / len(y)
        rounds += swarm.average({"weights": weights})
    swarm.leave()
    print(f"error {abs(weights - truth).max():.4f} rounds {rounds}", flush=True)


if __name__ == "__main__":
    main()
