"""The exception types and what they carry."""

from . import amdsmi_wrapper


class AmdSmiException(Exception):  # noqa: N818 - the real name
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code):
        super().__init__(err_code)
        self.err_code = abs(err_code)
        names = {v: k for k, v in vars(amdsmi_wrapper).items() if k.startswith("AMDSMI_STATUS_")}
        self.err_info = f"{names.get(self.err_code, 'AMDSMI_STATUS_UNKNOWN_ERROR')} - as the library words it"

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | {self.err_info}"

    def get_error_code(self):
        return self.err_code


class AmdSmiRetryException(AmdSmiLibraryException):
    def __init__(self):
        super().__init__(amdsmi_wrapper.AMDSMI_STATUS_RETRY)


class AmdSmiTimeoutException(AmdSmiLibraryException):
    def __init__(self):
        super().__init__(amdsmi_wrapper.AMDSMI_STATUS_TIMEOUT)


class AmdSmiParameterException(AmdSmiException):
    def __init__(self, value, expected):
        super().__init__()
        self.err_code = None
        self.err_msg = f"Actual type: {type(value)}; expected type: {expected}"

    def __str__(self):
        return self.err_msg


class AmdSmiKeyException(AmdSmiException):
    def __init__(self, key):
        super().__init__()
        self.key = key


class AmdSmiBdfFormatException(AmdSmiException):
    def __init__(self, bdf):
        super().__init__()
        self.bdf = bdf
