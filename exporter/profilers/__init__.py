"""The profilers of ROCm: what each is asked, and with which command line. Files they write: ``formats``."""
