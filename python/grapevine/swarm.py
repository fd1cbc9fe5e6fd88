"""A member of a swarm: what a program says after each step, and what it is asked in return.

The library says what is due (include/grapevine.h): a step, a copy of the values, a change of them. `Swarm` answers from
the thread that trains, between two optimizer steps, so nobody else changes a tensor. Where all tensors are float32,
float16 or bfloat16 without gaps in the host's memory, the library reads and writes them in place; otherwise they go
through one flat vector of the host (values.py).
"""
import contextlib
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from . import _library as gv
from .values import Values, array_values


STATE_VERSION = 2  # of state_dict()


@dataclass(frozen=True)
class Status:
    """As of now. step: of the swarm's model; samples, own_steps: of this member. consensus_distance: relative, NaN where
    no round has told it yet."""

    step: int
    own_steps: int
    samples: int
    round: int
    rounds_ok: int
    rounds_aborted: int
    bytes_sent: int
    bytes_received: int
    members: int
    consensus_distance: float
    last_abort_reason: str
    address: str


def config_text(settings: Mapping[str, Any]) -> str:
    """Keyword arguments as the lines of a configuration: `_` becomes `-`, lists are joined by commas."""
    lines = []
    for name, value in settings.items():
        if value is None or value is False:
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(str(v) for v in value)
        text = "yes" if value is True else str(value)
        if "\n" in text or "\r" in text:
            raise gv.GrapevineError(f"{name}: a value may not have more than one line")
        lines.append(f"{name.replace('_', '-')} = {text}\n")
    return "".join(lines)


def join(**settings: Any) -> "Swarm":
    """A member that is to be; nothing is opened before wrap() or average().

    Keyword arguments are the flags of `grapevine peer` with `_` for `-`: bootstrap, swarm_key, averaging, codec, listen,
    start_with, steps, time, out, http, ... GrapevineError for an unknown one, with the nearest name. `model` and `data`
    (specs of native peers) make it average with native peers of that model; wrap() then takes their tensor names.
    """
    return Swarm(settings)


class Swarm:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._member = gv.Member(config_text(settings))
        self._values: Optional[Values] = None
        self._restored: Any = None
        self._is_over = False
        self._seen = 0
        self._loss = 0.0
        self._undo: list = []

    # ---- what there is to know ----

    @property
    def status(self) -> Status:
        view = self._member.status()
        return Status(*(v.decode(errors="replace") if isinstance(v, bytes) else v
                        for v in (getattr(view, name) for name in Status.__dataclass_fields__)))

    @property
    def step(self) -> int:
        """Steps of the swarm's model: what a schedule goes by, also of one who joined late."""
        return int(self._member.status().step) if self._values is not None else 0

    @property
    def samples(self) -> int:
        """Seen by this member."""
        return int(self._member.status().samples) if self._values is not None else 0

    @property
    def address(self) -> str:
        """HOST:PORT that others may give as bootstrap."""
        return self.status.address

    @property
    def is_over(self) -> bool:
        """The goal (steps, time) is reached, or the member has left: steps are the program's own again."""
        return self._is_over

    def json(self) -> str:
        """As `grapevine status --json`."""
        return self._member.json()

    # ---- training ----

    def wrap(self, optimizer: Any, model: Any, names: Optional[Mapping[str, str]] = None) -> Any:
        """Join with the values of `model`, and tell the swarm after each optimizer.step(). Returns the same optimizer.

        Call it once the model is on its device and in its memory format. Returns when a step is due: the model of a
        swarm that trains already has been taken, and --start-with is met. `names`: the swarm's names of tensors by those
        of model.state_dict(); without them the module's own, or the native ones where `model` was given to join().
        Samples are counted from the first dimension of what the model is called with while it trains. GrapevineError.
        """
        from . import torch_values

        if names is None and self._settings.get("model") is not None:
            from . import models

            names = {theirs: ours for ours, theirs, _, _ in models.tensors(model)}
        self._start(torch_values.model_values(model, names))
        self._undo += [torch_values.count_samples(model, self._saw), torch_values.after_step(optimizer, self._stepped)]
        return optimizer

    @contextlib.contextmanager
    def training(self, model: Any = None, optimizer: Any = None) -> Iterator["Swarm"]:
        """Leave the swarm when the block ends: with a goodbye and a last checkpoint, also at Ctrl-C; with none when
        another exception ends it. Wraps the optimizer where wrap() was not called."""
        if self._values is None:
            self.wrap(optimizer, model)
        try:
            yield self
        except KeyboardInterrupt:
            self.leave()
            raise
        except BaseException:
            self.close()
            raise
        else:
            self.leave()

    def loss(self, value: float) -> None:
        """The loss of the step to come, for reports; one that is not finite makes the member go back to the last good
        model."""
        self._loss = float(value)

    def _saw(self, samples: int) -> None:
        self._seen += samples

    def _stepped(self) -> None:
        if self._is_over:
            return
        member = self._member
        event = member.calls.gv_step(member.handle, self._seen, self._loss)
        self._seen = 0
        if event != gv.STEP:
            self._serve(member.check(event))

    # ---- numpy and others ----

    def average(self, arrays: Union[Any, Sequence[Any], Mapping[str, Any]]) -> bool:
        """One round: arrays become their mean over the members, in place; as many and of the same shapes each time.

        NumPy arrays, torch tensors, or whatever is writable and has the buffer protocol, of float32, alone, in a list or
        by name. Blocks until a round has ended, and is false where no other member is there. The first call joins, and
        its values count in that round: to take the swarm's model instead, call take() before. Without `averaging` in
        join() the method is `allreduce` with `robust` none, the plain mean; with one whose rounds run beside training, a round's change comes later.
        """
        named = array_values(arrays)
        if self._values is None:
            own = [bytes(view) for view in named.keeps]
            self.take(arrays)
            for view, values in zip(named.keeps, own):
                view[:] = values
            self._values = named
        elif named.described() != self._values.described():
            raise gv.GrapevineError("average: other names or shapes than the first time; join again for another set")
        else:
            self._values = named
        return self._round()

    def take(self, arrays: Union[Any, Sequence[Any], Mapping[str, Any]]) -> None:
        """Join with these arrays, as average() takes them; they become the model of the swarm that is there, if any."""
        if self._values is None and self._settings.get("averaging") is None:
            self._settings.update(averaging="allreduce", robust=self._settings.get("robust", "none"))
            self._member.close()
            self._member = gv.Member(config_text(self._settings))
            self._restore()
        self._start(array_values(arrays))

    def _round(self) -> bool:
        before = self._member.status()
        while not self._is_over:
            self._stepped()
            now = self._member.status()
            if now.rounds_ok > before.rounds_ok:
                return True
            if now.members < 2:
                return False
            time.sleep(0)  # a method whose rounds run beside training takes steps meanwhile
        return False

    # ---- checkpoints, and the end ----

    def state_dict(self) -> Dict[str, Any]:
        """For the program's own checkpoint, between two steps: all that goes on with this member, its values and what
        rounds remember of it, as one uint8 tensor (bytes where the values are arrays). Take it before the copies of the
        model and the optimizer that go with it: a round may end here. Once the swarm is over `state` is None."""
        if self._values is None:
            raise gv.GrapevineError("state_dict: not joined yet; call wrap() or average() first")
        return {"version": STATE_VERSION, "state": None if self._is_over else self._take_state()}

    def _take_state(self) -> Any:
        member, values = self._member, self._values
        assert values is not None
        self._serve(member.check(member.calls.gv_ask_state(member.handle)), gv.STATE)
        if self._is_over:
            return None
        count = member.state_bytes()
        state, address = values.room_for_state(count)
        member.check(member.calls.gv_state(member.handle, address, count, None))
        self._serve(member.wait())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before wrap(), take() or average(): go on from what state_dict() gave. The values come with the first of those
        calls, and with them the counts, the round and what the method remembers; if the swarm is further, its model.
        GrapevineError for a damaged one here, for one of another model or method there; nothing changes then."""
        if self._values is not None:
            raise gv.GrapevineError("load_state_dict: call it before wrap(), take() or average()")
        if state.get("version") != STATE_VERSION:
            raise gv.GrapevineError("load_state_dict: not a state of this version of grapevine; leave it out")
        self._restored = state.get("state")
        self._restore()

    def _restore(self) -> None:
        state, member = self._restored, self._member
        if state is None:
            return
        if hasattr(state, "data_ptr"):
            state = state.cpu().contiguous()
            address, count = state.data_ptr(), state.numel() * state.element_size()
        else:
            state = bytes(state)
            address, count = state, len(state)
        member.check(member.calls.gv_restore(member.handle, address, count))

    def leave(self) -> None:
        """Say goodbye, with a last checkpoint; returns when that is done. Then the model is the program's alone."""
        if self._values is not None and not self._is_over:
            self._member.check(self._member.calls.gv_leave(self._member.handle))
            while not self._is_over:
                self._serve(self._member.wait())  # a step that was due is called off
        self.close()

    def close(self) -> None:
        """Let go of everything at once: as if killed, others do not suffer."""
        self._is_over = True
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._member.close()

    # ---- inside ----

    def _start(self, values: Values) -> None:
        if self._values is not None:
            raise gv.GrapevineError("a swarm has one model: join once more for another")
        member = self._member
        tensors = values.tensors()
        member.check(member.calls.gv_start(member.handle, tensors, len(tensors)))
        self._values = values
        self._serve(member.wait())

    def _serve(self, event: int, wanted: int = gv.STEP) -> None:
        """Until a step is due, or what else is wanted, or the member has ended."""
        member, values = self._member, self._values
        assert values is not None
        while event != wanted:
            if event == gv.ENDED:
                self._is_over = True
                return
            if event == gv.SNAPSHOT:
                values.snapshot(member)
            elif event in (gv.DIFFERENCE, gv.REPLACE):
                values.apply(member, event)
            event = member.wait()
