"""Between arrays of a program and the flat float32 vector of a member: parameters, then buffers, in described order."""
import ctypes
import hashlib
from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple, Union

from . import _library as gv


class Entry(NamedTuple):
    """A tensor as the swarm knows it; `address` 0: not to be touched in place."""

    name: str
    kind: int
    dtype: int
    shape: Tuple[int, ...]
    address: int


def short_name(name: str) -> str:
    """Names of more than 63 bytes keep their end and get a digest of the whole."""
    raw = name.encode()
    if len(raw) <= gv.NAME_MAX:
        return name
    digest = hashlib.blake2s(raw, digest_size=8).hexdigest()
    return raw[-(gv.NAME_MAX - 17):].decode(errors="ignore") + "~" + digest


def folded(shape: Sequence[int]) -> Tuple[int, ...]:
    """One to four dimensions: a number is a vector of one, and what is more is folded into the last."""
    shape = tuple(shape) or (1,)
    if len(shape) <= gv.RANK_MAX:
        return shape
    last = 1
    for side in shape[gv.RANK_MAX - 1:]:
        last *= side
    return shape[:gv.RANK_MAX - 1] + (last,)


class Values:
    """What a member asks of values. A kind of array that cannot be changed in place overrides snapshot() and apply()."""

    def __init__(self, entries: List[Entry], keeps: Any = None) -> None:
        self.entries, self.keeps = entries, keeps

    def described(self) -> List[Tuple[str, int, Tuple[int, ...]]]:
        return [(e.name, e.kind, e.shape) for e in self.entries]

    def tensors(self) -> Any:
        array = (gv.Tensor * len(self.entries))()
        for tensor, entry in zip(array, self.entries):
            tensor.name, tensor.kind, tensor.dtype = entry.name.encode(), entry.kind, entry.dtype
            tensor.rank = len(entry.shape)
            tensor.shape[:len(entry.shape)] = entry.shape
            tensor.values = entry.address or None
        return array

    def room_for_state(self, count: int) -> Tuple[Any, int]:
        """What a state is kept as, and where its bytes go."""
        room = bytearray(count)
        return room, ctypes.addressof(ctypes.c_char.from_buffer(room))

    def snapshot(self, member: gv.Member) -> None:
        member.check(member.calls.gv_snapshot(member.handle))

    def apply(self, member: gv.Member, event: int) -> None:
        member.check(member.calls.gv_apply(member.handle))


class ArrayValues(Values):
    """Arrays through a vector of the host: they may be others at each round, of the same shapes."""

    def __init__(self, entries: List[Entry], views: List[Any]) -> None:
        super().__init__(entries, views)
        self.plane = (ctypes.c_float * sum(len(v) // 4 for v in views))()
        self.bytes = memoryview(self.plane).cast("B")

    def _copy(self, is_out: bool) -> None:
        at = 0
        for view in self.keeps:
            here = self.bytes[at:at + len(view)]
            (here if is_out else view)[:] = view if is_out else here
            at += len(view)

    def snapshot(self, member: gv.Member) -> None:
        self._copy(True)
        member.check(member.calls.gv_snapshot_from(member.handle, self.plane))

    def apply(self, member: gv.Member, event: int) -> None:
        if event == gv.REPLACE:
            self._copy(True)
            member.check(member.calls.gv_apply_into(member.handle, self.plane))
            self._copy(False)
            return
        member.check(member.calls.gv_apply_into(member.handle, self.plane))
        at = 0
        for view in self.keeps:
            add(view, self.plane, at)
            at += len(view) // 4


def add(view: Any, plane: Any, at: int) -> None:
    """view += plane[at:], by numpy where it is there."""
    count = len(view) // 4
    try:
        import numpy
    except ImportError:
        floats = view.cast("f")
        for i in range(count):
            floats[i] += plane[at + i]
        return
    numpy.frombuffer(view, numpy.float32)[:] += numpy.frombuffer(plane, numpy.float32, count, 4 * at)


def writable(name: str, array: Any) -> Tuple[Tuple[int, ...], Any]:
    """Shape, and the bytes of an array. GrapevineError."""
    if hasattr(array, "detach"):  # a torch tensor has no buffer protocol; its NumPy form shares its memory
        if array.is_cuda:
            raise gv.GrapevineError(f"average: {name} is on a device; use wrap(), or average a copy on the host")
        array = array.detach().numpy()
    try:
        view = memoryview(array)
        if view.format != "f" or view.readonly or not view.c_contiguous:
            raise TypeError("not writable float32 without gaps")
        return view.shape or (1,), view.cast("B") if view.ndim else view.cast("B")
    except (TypeError, ValueError) as why:
        raise gv.GrapevineError(f"average: {name}: {why}; pass writable float32 arrays without gaps") from None


def array_values(arrays: Union[Any, Sequence[Any], Mapping[str, Any]]) -> ArrayValues:
    if isinstance(arrays, Mapping):
        named = [(str(n), a) for n, a in arrays.items()]
    else:
        named = [(f"array{i}", a) for i, a in enumerate(arrays if isinstance(arrays, (list, tuple)) else [arrays])]
    if not named:
        raise gv.GrapevineError("average: nothing to average was given")
    entries, views = [], []
    for name, array in named:
        shape, view = writable(name, array)
        entries.append(Entry(short_name(name), gv.PARAMETER, gv.F32, folded(shape), 0))
        views.append(view)
    return ArrayValues(entries, views)
