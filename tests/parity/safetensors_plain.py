#!/usr/bin/python3
"""safetensors and our `mlp` in numpy, written from the format's description alone: what others do
with our files, and what they make for us. For tests/e2e/test_safetensors_python.sh.

    safetensors_plain.py data FOLDER              a small image set in MNIST's layout
    safetensors_plain.py eval FILE FOLDER         accuracy and loss of FILE on its test part
    safetensors_plain.py random FILE NEW [reversed]  other weights in place of those of FILE; the
                                              tensors in reverse order
"""
import json
import os
import struct
import sys

import numpy as np

CLASSES, SIDE, TRAIN, TEST = 4, 8, 512, 200


def read(path):
    """Tensors by name in the order in which they lie in the file, and the metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        values = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        assert entry["dtype"] == "F32", name
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(values[begin:end], "<f4").reshape(entry["shape"])
    return tensors, metadata


def write(path, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.astype("<f4").tobytes())


def idx_write(path, array):
    with open(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def idx_read(path):
    with open(path, "rb") as file:
        _, kind, rank = struct.unpack(">HBB", file.read(4))
        assert kind == 8
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def make_data(folder):
    random = np.random.default_rng(1)
    patterns = random.integers(0, 128, (CLASSES, SIDE, SIDE))
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        labels = random.integers(0, CLASSES, count)
        images = patterns[labels] + random.integers(0, 128, (count, SIDE, SIDE))
        idx_write(os.path.join(folder, f"{part}-images-idx3-ubyte"), images.astype(np.uint8))
        idx_write(os.path.join(folder, f"{part}-labels-idx1-ubyte"), labels.astype(np.uint8))


def evaluate(path, folder):
    tensors, metadata = read(path)
    mean, scale = float(tensors.pop("input.mean")[0]), float(tensors.pop("input.scale")[0])
    tensors = list(tensors.values())
    assert [t.ndim for t in tensors] == [2, 1] * 3, "not an mlp"
    images = idx_read(os.path.join(folder, "t10k-images-idx3-ubyte"))
    labels = idx_read(os.path.join(folder, "t10k-labels-idx1-ubyte"))
    x = (images.reshape(len(images), -1) / 255 - mean) * scale
    for layer in range(3):
        x = x @ tensors[2 * layer].astype(np.float64).T + tensors[2 * layer + 1]
        x = np.maximum(x, 0) if layer < 2 else x
    x -= x.max(1, keepdims=True)
    losses = np.log(np.exp(x).sum(1)) - x[np.arange(len(labels)), labels]
    print((x.argmax(1) == labels).mean(), losses.mean())


def make_random(path, new):
    tensors, metadata = read(path)
    random = np.random.default_rng(2)
    metadata.pop("digest")  # of the old values
    for name, tensor in tensors.items():
        if name.startswith("dense"):
            tensors[name] = random.uniform(-0.2, 0.2, tensor.shape).astype("<f4")
    # The order of tensors in a file means nothing.
    write(new, dict(reversed(tensors.items())) if len(sys.argv) > 4 else tensors, metadata)


if __name__ == "__main__":
    command = {"data": make_data, "eval": evaluate, "random": make_random}[sys.argv[1]]
    command(*sys.argv[2:4])
