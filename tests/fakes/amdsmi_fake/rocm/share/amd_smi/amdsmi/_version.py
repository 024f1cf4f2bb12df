import os

from .releases import THIS

# A module of another release than its library, or one that is numbered after ROCm as repackaged ones are.
__version__ = os.environ.get("FAKE_AMDSMI_MODULE_VERSION", THIS.module)
