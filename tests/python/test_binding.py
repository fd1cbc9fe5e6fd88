#!/usr/bin/python3
"""The Python package against the library itself: what joins, averages, is refused, is interrupted, and is forked.

Members of one test run in processes of their own, as they would. LIBGRAPEVINE names the library. WITHOUT_TORCH=1: as if it were not installed.
"""
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import numpy

import grapevine
from grapevine import values

try:
    torch = None
    if not os.environ.get("WITHOUT_TORCH"):
        import torch
except ImportError:
    pass

QUIET = {"listen": "127.0.0.1:0", "start_with": 2}
needs_torch = unittest.skipIf(torch is None, "SKIP: python3-torch is not installed, or not wanted")


def member(work, address, told, name, results, barrier):
    global together
    together = barrier
    settings = dict(QUIET, bootstrap=address) if address else QUIET
    try:
        results.put((name, work(name, told, settings)))
    except BaseException as why:  # the parent compares results, and prints this one
        results.put((name, repr(why)))


def swarm_of_two(work):
    """What work(0) and work(1) return; the first tells its address by told(address)."""
    context = multiprocessing.get_context("spawn")
    results, address, barrier = context.SimpleQueue(), context.SimpleQueue(), context.Barrier(2)
    first = context.Process(target=member, args=(work, None, address, 0, results, barrier))
    first.start()
    second = context.Process(target=member, args=(work, address.get(), None, 1, results, barrier))
    second.start()
    found = dict(results.get() for _ in range(2))
    first.join()
    second.join()
    return found[0], found[1]


def free_address():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


def settings_of(name, told, settings):
    """The first listens on an address that it tells before it waits for the second."""
    if told is None:
        return settings
    address = free_address()
    told.put(address)
    return dict(settings, listen=address)


def average_arrays(name, told, settings):
    swarm = grapevine.join(**settings_of(name, told, settings))
    array = numpy.full((3, 2), float(name), numpy.float32)
    is_averaged = swarm.average({"w": array})
    result = array.tolist()
    together.wait()  # who leaves in the middle of a round takes its values along
    swarm.leave()
    return is_averaged, result


def train(name, told, settings, move=None):
    torch.manual_seed(name)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    if move is not None:
        move(model)
    dtype = next(model.parameters()).dtype
    swarm = grapevine.join(averaging="allreduce", **settings_of(name, told, settings))
    optimizer = swarm.wrap(torch.optim.SGD(model.parameters(), 0.05), model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.99 ** swarm.step)
    x = torch.randn(64, 4, dtype=dtype)
    y = x.sum(1, keepdim=True)
    with swarm.training(model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            swarm.loss(loss)
            optimizer.step()
            schedule.step()
        status = swarm.status
        weights = torch.cat([p.detach().flatten().float() for p in model.parameters()]).tolist()
    return status.rounds_ok, status.samples, weights


def steps_of_its_own(swarm, model, optimizer, first, last):
    """Each with a batch that its number says."""
    for step in range(first, last):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(), swarm.step, swarm.samples


def wrapped(checkpoint=None):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    swarm = grapevine.join(listen="127.0.0.1:0", averaging="diloco:H=4")
    if checkpoint is not None:
        optimizer.load_state_dict(checkpoint["optimizer"])
        swarm.load_state_dict(checkpoint["swarm"])
        for p in model.parameters():  # the values come with the state
            p.data.zero_()
    swarm.wrap(optimizer, model)
    return swarm, model, optimizer


def train_until_killed(path, is_saved):
    swarm, model, optimizer = wrapped()
    steps_of_its_own(swarm, model, optimizer, 0, 10)
    torch.save({"swarm": swarm.state_dict(), "optimizer": optimizer.state_dict()}, path)
    is_saved.set()
    steps_of_its_own(swarm, model, optimizer, 10, sys.maxsize)


def to_float64(model):
    model.double()


def train_through_plane(name, told, settings):
    return train(name, told, settings, to_float64)


class Binding(unittest.TestCase):
    def near(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), tolerance)

    def test_an_unknown_setting_is_refused_with_the_nearest_name(self):
        with self.assertRaisesRegex(grapevine.GrapevineError, "bootstrap"):
            grapevine.join(bootstrep="127.0.0.1:1")

    def test_a_setting_of_two_lines_is_refused(self):
        with self.assertRaisesRegex(grapevine.GrapevineError, "one line"):
            grapevine.join(out="a\nlisten = 0.0.0.0:1")

    def test_two_members_hold_the_mean_of_their_arrays(self):
        for result in swarm_of_two(average_arrays):
            self.assertIs(result[0], True, result)
            for row in result[1]:
                self.near(row, [0.5, 0.5], 1e-6)

    @needs_torch
    def test_two_models_are_one_after_steps_that_average(self):
        a, b = swarm_of_two(train)
        self.assertGreaterEqual(a[0], 15, a)
        self.assertEqual(a[1], 20 * 64, a)
        self.near(a[2], b[2], 0.2)

    @needs_torch
    def test_tensors_that_are_not_float32_go_through_the_plane(self):
        a, b = swarm_of_two(train_through_plane)
        self.assertGreaterEqual(a[0], 15, a)
        self.near(a[2], b[2], 0.2)

    @needs_torch
    def test_who_is_killed_goes_on_from_its_own_checkpoint_to_the_bit(self):
        context = multiprocessing.get_context("spawn")
        is_saved = context.Event()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.pt")
            killed = context.Process(target=train_until_killed, args=(path, is_saved))
            killed.start()
            is_saved.wait()
            os.kill(killed.pid, signal.SIGKILL)
            killed.join()
            checkpoint = torch.load(path)
        whole, again = wrapped(), wrapped(checkpoint)
        expected = steps_of_its_own(*whole, 0, 16)
        self.assertEqual(again[0].step, 10)
        self.assertEqual(steps_of_its_own(*again, 10, 16), expected)
        again[0].leave()
        whole[0].leave()
        self.assertIsNone(again[0].state_dict()["state"])

    def test_a_state_is_refused_where_it_does_not_belong(self):
        swarm = grapevine.join(listen="127.0.0.1:0")
        with self.assertRaisesRegex(grapevine.GrapevineError, "not joined"):
            swarm.state_dict()
        swarm.take(numpy.full(3, 7, numpy.float32))
        state = swarm.state_dict()
        with self.assertRaisesRegex(grapevine.GrapevineError, "before wrap"):
            swarm.load_state_dict(state)
        swarm.close()
        again = grapevine.join(listen="127.0.0.1:0")
        again.load_state_dict(state)
        array = numpy.zeros(3, numpy.float32)
        again.take(array)
        self.assertEqual(array.tolist(), [7, 7, 7])
        again.close()
        other = grapevine.join(listen="127.0.0.1:0")
        with self.assertRaisesRegex(grapevine.GrapevineError, "version"):
            other.load_state_dict({})
        state["state"][100] ^= 1
        with self.assertRaisesRegex(grapevine.GrapevineError, "damaged"):
            other.load_state_dict(state)
        state["state"][100] ^= 1
        other.load_state_dict(state)
        with self.assertRaisesRegex(grapevine.GrapevineError, "other tensors"):
            other.take(numpy.zeros(4, numpy.float32))

    def test_ctrl_c_ends_a_wait(self):
        swarm = grapevine.join(**QUIET)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            swarm.average(numpy.zeros(3, numpy.float32))
        swarm.close()

    def test_a_child_of_a_member_is_refused_and_hurts_nobody(self):
        swarm = grapevine.join(listen="127.0.0.1:0")
        self.assertFalse(swarm.average(numpy.zeros(3, numpy.float32)))
        child = os.fork()
        if child == 0:
            try:
                swarm.status
            except grapevine.GrapevineError as why:
                os._exit(0 if "child" in str(why) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertFalse(swarm.average(numpy.ones(3, numpy.float32)))
        swarm.leave()

    def test_another_shape_is_refused_and_nothing_changes(self):
        swarm = grapevine.join(listen="127.0.0.1:0")
        swarm.average(numpy.zeros(3, numpy.float32))
        with self.assertRaisesRegex(grapevine.GrapevineError, "shapes"):
            swarm.average(numpy.zeros(4, numpy.float32))
        with self.assertRaisesRegex(grapevine.GrapevineError, "float32"):
            swarm.average(numpy.zeros(3))
        swarm.close()

    def test_names_shapes_and_floats_without_numpy(self):
        name = values.short_name("é" * 80)
        self.assertLessEqual(len(name.encode()), 63)
        self.assertNotEqual(name, values.short_name("é" * 81))
        self.assertEqual(values.folded(()), (1,))
        self.assertEqual(values.folded((2, 3, 4, 5, 6)), (2, 3, 4, 30))

    @needs_torch
    def test_a_tensor_on_a_device_is_staged_on_a_side_stream(self):
        from unittest import mock
        from grapevine import torch_values

        said = []

        class Stream:
            def wait_stream(self, other):
                said.append("behind what is computed")

            def synchronize(self):
                said.append("done")

        class OnDevice(torch.Tensor):
            is_cuda = True

        model = torch.nn.Linear(2, 1)
        model.weight = torch.nn.Parameter(model.weight.detach())
        staged = torch_values.model_values(model, None)
        staged.of = [(kind, t.detach().as_subclass(OnDevice)) for kind, t in staged.of]
        staged.addresses = [staged.address(t) for _, t in staged.of]
        self.assertFalse(staged.is_in_place())
        staged.is_on_device = True
        fake = mock.MagicMock()
        fake.gv_snapshot_from.side_effect = fake.gv_apply_into.side_effect = lambda *_: said.append("library") or 0
        handle = mock.Mock(calls=fake, check=lambda code: code)
        staged.plane = torch.empty(3)
        with mock.patch.object(torch.cuda, "Stream", Stream), mock.patch.object(torch.cuda, "current_stream"), \
                mock.patch.object(torch.cuda, "stream"):
            before = model.weight.detach().clone()
            staged.snapshot(handle)
            self.assertEqual(said, ["behind what is computed", "done", "library"])
            staged.apply(handle, 3)  # a difference: here what the snapshot left in the plane
        torch.testing.assert_close(model.weight.detach(), 2 * before)
        self.assertEqual(said[3:], ["behind what is computed", "done", "library", "behind what is computed", "done"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
