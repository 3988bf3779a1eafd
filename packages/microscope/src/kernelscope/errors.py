"""Errors with a remedy."""


class UserError(Exception):
    """A mistake the user can mend: its message names the place and the remedy, and is shown without a traceback."""


class MachineError(UserError):
    """A refusal of the machine, such as a full disk: it is no result of the kernel that met it."""


class CompileError(UserError):
    """A refusal of the source code by a compiler: by g++, or by NVRTC, which refuses some of what g++ takes."""


class NotEmulated(UserError):
    """A refusal of code that a GPU may run and the emulator cannot."""
