#!/usr/bin/python3
"""The callbacks of python/examples, called as the documentation of their trainers says, by stand-ins for these."""
import os
import sys
import types
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
sys.path[:0] = [ROOT, os.path.join(ROOT, "examples")]
import callbacks

try:
    import torch
except ImportError:
    torch = None


class Base:
    pass


class Around:
    """As accelerate.optimizer.AcceleratedOptimizer is: the optimizer inside, its attributes outside."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def step(self):
        self.optimizer.step()


@unittest.skipIf(torch is None, "SKIP: python3-torch is not installed")
class Callbacks(unittest.TestCase):
    def setUp(self):
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def one_step(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 3)).pow(2).mean().backward()
        Around(self.optimizer).step()

    def test_the_trainer_of_hugging_face_stops_at_the_goal(self):
        callback = callbacks.trainer_callback(Base, listen="127.0.0.1:0", steps=5)
        control = types.SimpleNamespace(should_training_stop=False)
        callback.on_train_begin(None, None, control, model=self.model, optimizer=Around(self.optimizer))
        for done in range(1, 100):
            self.one_step()
            callback.on_step_end(None, None, control)
            if control.should_training_stop:
                break
        callback.on_train_end(None, None, control)
        self.assertEqual(done, 5)

    def test_lightning_counts_samples_and_leaves(self):
        callback = callbacks.lightning_callback(Base, listen="127.0.0.1:0")
        trainer = types.SimpleNamespace(optimizers=[Around(self.optimizer)], should_stop=False)
        callback.on_train_start(trainer, self.model)
        for i in range(3):
            self.one_step()
            callback.on_train_batch_end(trainer, self.model, None, None, i)
        self.assertEqual(callback.swarm.step, 3)
        callback.on_train_end(trainer, self.model)
        self.assertTrue(callback.swarm.is_over)


if __name__ == "__main__":
    unittest.main(verbosity=2)
