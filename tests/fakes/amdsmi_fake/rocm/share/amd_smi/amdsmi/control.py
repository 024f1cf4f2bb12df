"""Fault switches and call counts. Set in the process, or through a file that may change while it runs.

FAKE_AMDSMI_CONTROL names a JSON file with any of the keys of ``Control``; it is looked at before each call.
A call is named "function" or "function:PCI"; "*" stands for every function.
"""

import json
import os
import signal
import time

from . import amdsmi_exception as errors
from . import amdsmi_wrapper


class Control:
    def __init__(self):
        self.calls = {}
        self.mutate = None  # (function, path to the leaf, value), set in the process only
        self.na = False  # "N/A" at every leaf
        self.leaked = []
        self.handles = []
        self._path = os.environ.get("FAKE_AMDSMI_CONTROL")
        self._stamp = None
        self._take({})

    def _take(self, said):
        self.hang = said.get("hang", [])
        self.segfault = said.get("segfault", [])
        self.raises = said.get("raises", {})  # call -> status name, or exception class name
        self.leak_bytes = said.get("leak_bytes", 0)
        self.leaves = said.get("leaves", {})  # PCI address -> what every leaf of its answers is
        self.gone = said.get("gone", [])  # PCI addresses that left
        self.unloaded = said.get("unloaded", False)  # no driver
        self.hold = said.get("hold")  # file kept open from init to shut-down
        self.hold_for_ever = said.get("hold_for_ever")  # file that even shut-down leaves open
        self.partitions = said.get("partitions")  # compute partition mode to be in

    def refresh(self):
        if not self._path:
            return
        try:
            stat = os.stat(self._path)
        except OSError:
            return
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp != self._stamp:
            self._stamp = stamp
            with open(self._path) as f:
                self._take(json.load(f))

    def enter(self, function, pci):
        self.calls[function] = self.calls.get(function, 0) + 1
        self.refresh()
        if self.leak_bytes:
            self.leaked.append(b"\1" * self.leak_bytes)
        for name in ("*", function, f"{function}:{pci}", f"*:{pci}"):
            if name in self.hang:
                time.sleep(3600)
            if name in self.segfault:
                os.kill(os.getpid(), signal.SIGSEGV)
            if (what := self.raises.get(name)) is not None:
                raise _exception(what)


def _exception(what):
    if (code := getattr(amdsmi_wrapper, f"AMDSMI_STATUS_{what}", None)) is not None:
        return errors.AmdSmiLibraryException(code)
    arguments = {
        "AmdSmiParameterException": (1, str),
        "AmdSmiKeyException": ("k",),
        "AmdSmiBdfFormatException": ("b",),
    }
    own = getattr(errors, what, None)
    if own is errors.AmdSmiLibraryException:
        return own(9999)
    if own is not None:
        return own(*arguments.get(what, ()))
    return {
        "OSError": OSError(5, "Input/output error"),
        "KeyError": KeyError("x"),
        "TypeError": TypeError("x"),
    }[what]


THIS = Control()
