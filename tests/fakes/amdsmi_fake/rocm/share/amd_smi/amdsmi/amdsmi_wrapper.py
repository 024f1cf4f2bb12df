"""Numbers behind names. They moved between releases, so only the names mean anything."""

import ctypes
import os

from .releases import NAME, THIS

AMDSMI_STATUS_SUCCESS = 0
AMDSMI_STATUS_INVAL = 1
AMDSMI_STATUS_NOT_SUPPORTED = 2
AMDSMI_STATUS_DRM_ERROR = 6
AMDSMI_STATUS_API_FAILED = 7
AMDSMI_STATUS_TIMEOUT = 8
AMDSMI_STATUS_RETRY = 9
AMDSMI_STATUS_NO_PERM = 10
AMDSMI_STATUS_IO = 12
AMDSMI_STATUS_FILE_ERROR = 14
AMDSMI_STATUS_OUT_OF_RESOURCES = 15
AMDSMI_STATUS_BUSY = 30
AMDSMI_STATUS_NOT_FOUND = 31
AMDSMI_STATUS_NOT_INIT = 32
AMDSMI_STATUS_DRIVER_NOT_LOADED = 34
AMDSMI_STATUS_NO_DATA = 40
AMDSMI_STATUS_UNEXPECTED_SIZE = 42
AMDSMI_STATUS_UNEXPECTED_DATA = 43
AMDSMI_STATUS_FILE_NOT_FOUND = 52
AMDSMI_STATUS_CORRUPTED_EEPROM = 56
AMDSMI_STATUS_UNKNOWN_ERROR = 0xFFFFFFFF
if NAME not in ("6.1", "6.2", "6.3"):
    AMDSMI_STATUS_MORE_DATA = THIS.more_data


class amdsmi_version_t(ctypes.Structure):  # noqa: N801 - the real name
    _fields_ = [
        *([("year", ctypes.c_uint32)] if THIS.structure_year else []),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("release", ctypes.c_uint32),
    ]


def amdsmi_get_lib_version(pointer):
    """The C function: it writes its own numbers one after the other, whatever the structure calls them."""
    from . import control

    if os.environ.get("FAKE_AMDSMI_VERSION") == "after init" and not control.THIS.calls.get("init"):
        return AMDSMI_STATUS_NOT_INIT
    said = os.environ.get("FAKE_AMDSMI_LIBRARY")
    numbers = tuple(map(int, said.split("."))) if said else THIS.library
    version = pointer._obj
    for (name, _), number in zip(version._fields_, numbers, strict=False):
        setattr(version, name, number)
    return AMDSMI_STATUS_SUCCESS
