"""The calls of include/grapevine.h through ctypes, which releases the interpreter's lock while a call runs."""
import ctypes
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Optional

ABI = 1
STEP, WAITS, SNAPSHOT, DIFFERENCE, REPLACE, ENDED, STATE = range(7)
USAGE, FAILED, INTERRUPTED = -1, -4, -6
PARAMETER, BUFFER = 0, 1
F32, F16, BF16 = range(3)
RANK_MAX, NAME_MAX = 4, 63


class GrapevineError(RuntimeError):
    """What failed, why, and what to do, in one line. `code` is an enum gv_error of include/grapevine.h."""

    def __init__(self, text: str, code: int = USAGE) -> None:
        super().__init__(text)
        self.code = code


class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_uint32), ("dtype", c_uint32), ("rank", c_uint32),
                ("shape", c_uint32 * RANK_MAX), ("values", c_void_p)]


class StatusView(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("own_steps", c_uint64), ("samples", c_uint64),
                ("round", c_uint64), ("rounds_ok", c_uint64), ("rounds_aborted", c_uint64),
                ("bytes_sent", c_uint64), ("bytes_received", c_uint64), ("members", c_uint32),
                ("consensus_distance", c_double), ("last_abort_reason", c_char * 96), ("address", c_char * 64)]


CALLS = {
    "gv_open": [c_char_p, POINTER(c_void_p)],
    "gv_start": [c_void_p, POINTER(Tensor), c_size_t],
    "gv_poll": [c_void_p],
    "gv_wait": [c_void_p],
    "gv_step": [c_void_p, c_uint64, c_double],
    "gv_snapshot": [c_void_p],
    "gv_snapshot_from": [c_void_p, c_void_p],
    "gv_apply": [c_void_p],
    "gv_apply_into": [c_void_p, c_void_p],
    "gv_ask_state": [c_void_p],
    "gv_state": [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)],
    "gv_restore": [c_void_p, c_void_p, c_size_t],
    "gv_status": [c_void_p, POINTER(StatusView)],
    "gv_json": [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)],
    "gv_leave": [c_void_p],
}
_loaded: Any = None


def load() -> Any:
    """The library: the file that LIBGRAPEVINE names, or the one of the package. Read once."""
    global _loaded
    if _loaded is None:
        path = os.environ.get("LIBGRAPEVINE") or str(Path(__file__).parent / "libgrapevine.so")
        try:
            library = ctypes.CDLL(path)
        except OSError as why:
            raise GrapevineError(f"cannot load {path}: {why}; install by `pip install ./python`, or set "
                                 "LIBGRAPEVINE to a libgrapevine.so") from None
        library.gv_abi.restype = c_uint32
        if library.gv_abi() != ABI:
            raise GrapevineError(f"{path} has ABI {library.gv_abi()} and this package needs {ABI}; install both anew")
        for name, arguments in CALLS.items():
            call = getattr(library, name)
            call.argtypes, call.restype = arguments, c_int
        library.gv_last_error.argtypes, library.gv_last_error.restype = [c_void_p], c_char_p
        library.gv_close.argtypes, library.gv_close.restype = [c_void_p], None
        _loaded = library
    return _loaded


class Member:
    """A handle. Every call raises GrapevineError where the library says a negative number."""

    def __init__(self, config: str) -> None:
        self.calls = load()
        self.handle: Optional[c_void_p] = None
        handle = c_void_p()
        code = self.calls.gv_open(config.encode(), byref(handle))
        if code < 0:
            raise GrapevineError(self.calls.gv_last_error(None).decode(errors="replace"), code)
        self.handle = handle

    def check(self, code: int) -> int:
        if code < 0:
            raise GrapevineError(self.calls.gv_last_error(self.handle).decode(errors="replace"), code)
        return code

    def wait(self) -> int:
        """Until something is to be done. Between two calls the interpreter runs handlers of signals: Ctrl-C raises."""
        while True:
            code = self.calls.gv_wait(self.handle)
            if code != INTERRUPTED:
                return self.check(code)

    def status(self) -> StatusView:
        view = StatusView(size=ctypes.sizeof(StatusView))
        self.check(self.calls.gv_status(self.handle, byref(view)))
        return view

    def json(self) -> str:
        cap = 1 << 16
        while True:
            text, needed = ctypes.create_string_buffer(cap), c_size_t()
            code = self.calls.gv_json(self.handle, text, cap, byref(needed))
            if code >= 0:
                return text.value.decode(errors="replace")
            if needed.value <= cap:
                self.check(code)
            cap = 2 * needed.value

    def state_bytes(self) -> int:
        """After STATE: how many bytes gv_state() gives."""
        needed = c_size_t()
        self.calls.gv_state(self.handle, None, 0, byref(needed))
        if needed.value == 0:  # there is none, and that was the call that says why
            raise GrapevineError(self.calls.gv_last_error(self.handle).decode(errors="replace"), FAILED)
        return needed.value

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            self.calls.gv_close(handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self.close()
