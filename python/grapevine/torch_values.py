"""The values of a torch model, and the two hooks: samples that it sees, steps of its optimizer. PyTorch 1.13 and newer."""
import types
from typing import Any, Callable, List, Mapping, Optional, Tuple

import torch

from . import _library as gv
from .values import Entry, Values, folded, short_name

DTYPES = {torch.float32: gv.F32, torch.float16: gv.F16, torch.bfloat16: gv.BF16}


def swarm_name(name: str) -> str:
    """Running statistics have the names by which they are pooled."""
    head, dot, last = name.rpartition(".")
    return head + dot + ("running_variance" if last == "running_var" else last)


class ModelValues(Values):
    """Parameters and floating-point buffers. In place where that is possible, else through `plane`, which is page-locked
    where a tensor is on a CUDA device; copies then run on a stream of their own."""

    def __init__(self, tensors: List[Tuple[str, int, torch.Tensor]]) -> None:
        self.of = [(kind, tensor) for _, kind, tensor in tensors]
        entries = [Entry(name, kind, DTYPES.get(t.dtype, gv.F32), folded(t.shape), self.address(t))
                   for name, kind, t in tensors]
        super().__init__(entries, self.of)
        self.addresses = [e.address for e in entries]
        self.is_on_device = any(t.is_cuda for _, t in self.of)
        self.stream: Optional[Any] = None
        self.plane: Optional[torch.Tensor] = None

    @staticmethod
    def address(tensor: torch.Tensor) -> int:
        """0: its values cannot be changed in place by the library."""
        is_plain = tensor.device.type == "cpu" and not tensor.is_cuda and tensor.is_contiguous() and tensor.dtype in DTYPES
        return tensor.data_ptr() if is_plain else 0

    def is_in_place(self) -> bool:
        """All are where they were described: a program may move a tensor by `tensor.data = other`."""
        return 0 not in self.addresses and all(self.address(t) == a for a, (_, t) in zip(self.addresses, self.of))

    def parts(self, plane: torch.Tensor, is_reversed: bool = False) -> List[Tuple[int, torch.Tensor, torch.Tensor]]:
        """(kind, tensor, its part of the plane): parameters first, then buffers."""
        result, at = [], 0
        for wanted in (gv.PARAMETER, gv.BUFFER):
            for kind, tensor in self.of:
                if kind == wanted:
                    result.append((kind, tensor, plane[at:at + tensor.numel()].view(tensor.shape)))
                    at += tensor.numel()
        return result

    def room_for_state(self, count: int) -> Tuple[torch.Tensor, int]:
        """A tensor: torch.load() takes it back also with weights_only."""
        room = torch.empty(count, dtype=torch.uint8)
        return room, room.data_ptr()

    def room(self) -> torch.Tensor:
        if self.plane is None:
            count = sum(t.numel() for _, t in self.of)
            self.plane = torch.empty(count, dtype=torch.float32, pin_memory=self.is_on_device)
        return self.plane

    def on_side(self, work: Callable[[], None]) -> None:
        """Run copies: on a side stream that begins behind what is computed so far, and done on return."""
        if not self.is_on_device:
            work()
            return
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            work()
        self.stream.synchronize()

    def read(self, plane: torch.Tensor) -> None:
        def work() -> None:
            for _, tensor, part in self.parts(plane):
                part.copy_(tensor, non_blocking=self.is_on_device)

        self.on_side(work)

    def snapshot(self, member: gv.Member) -> None:
        if self.is_in_place():
            super().snapshot(member)
            return
        with torch.no_grad():
            plane = self.room()
            self.read(plane)
        member.check(member.calls.gv_snapshot_from(member.handle, plane.data_ptr()))

    def apply(self, member: gv.Member, event: int) -> None:
        if self.is_in_place():
            super().apply(member, event)
            return
        with torch.no_grad():
            plane = self.room()
            self.read(plane)
            member.check(member.calls.gv_apply_into(member.handle, plane.data_ptr()))

            def work() -> None:
                for kind, tensor, part in self.parts(plane):
                    if event == gv.DIFFERENCE and kind == gv.PARAMETER:
                        tensor.add_(part.to(tensor.device, non_blocking=self.is_on_device))
                    else:
                        tensor.copy_(part, non_blocking=self.is_on_device)

            self.on_side(work)


def model_values(model: torch.nn.Module, names: Optional[Mapping[str, str]]) -> ModelValues:
    """Tensors that are shared count once. Integers, such as num_batches_tracked, stay each member's own."""
    tensors: List[Tuple[str, int, torch.Tensor]] = []
    kept = set(model.state_dict(keep_vars=True))
    every = [(n, gv.PARAMETER, p) for n, p in model.named_parameters()]
    every += [(n, gv.BUFFER, b) for n, b in model.named_buffers() if n in kept and b.is_floating_point()]
    for theirs, kind, tensor in every:
        if names is not None and theirs not in names:
            raise gv.GrapevineError(f"wrap: `names` has no name for {theirs}: give one for every tensor of the model")
        tensors.append((short_name(names[theirs] if names is not None else swarm_name(theirs)), kind, tensor))
    if not tensors:
        raise gv.GrapevineError("wrap: the model has no parameters")
    return ModelValues(tensors)


def count_samples(model: torch.nn.Module, saw: Callable[[int], None]) -> Callable[[], None]:
    """Tell the first dimension of what the model is called with while it trains. Returns what undoes it."""

    def before(module: torch.nn.Module, inputs: Any) -> None:
        if module.training and torch.is_grad_enabled() and inputs and getattr(inputs[0], "ndim", 0):
            saw(inputs[0].shape[0])

    return model.register_forward_pre_hook(before).remove


def after_step(optimizer: Any, stepped: Callable[[], None]) -> Callable[[], None]:
    """Call `stepped` behind each step. Returns what undoes it. A gradient scaler that skips a step skips this, too."""
    if hasattr(optimizer, "register_step_post_hook"):
        return optimizer.register_step_post_hook(lambda *_: stepped()).remove
    inner = optimizer.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        stepped()
        return result

    optimizer.step = types.MethodType(step, optimizer)

    def undo() -> None:
        optimizer.step = inner

    return undo
