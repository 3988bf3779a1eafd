"""Limits of the process that marks one hand-in, and of the thread that runs its code."""

import ctypes
import errno
import os
import resource
import struct
import threading
from collections.abc import Callable
from typing import Any

import psutil

#: Bytes of memory in use, of address space (the emulator reserves far more than it uses) and of a written file, and
#: seconds of computing, of a hand-in's process.
MEMORY, ADDRESSES, FILE, SECONDS = 3 << 30, 1 << 42, 64 << 20, 120
#: System calls of x86-64 that a kernel has no use for: sockets, processes, signals, other users' files, limits.
DENIED = (
    *(41, 42, 43, 49, 50, 53),  # socket, connect, accept, bind, listen, socketpair
    *(56, 57, 58, 59, 322, 435),  # clone, fork, vfork, execve, execveat, clone3
    *(62, 101, 109, 112, 310, 311),  # kill, ptrace, setpgid, setsid, process_vm_readv, process_vm_writev
    *(2, 85, 257, 437, 319, 425),  # open, creat, openat, openat2, memfd_create, io_uring_setup
    *(76, 77, 82, 83, 84, 86, 87, 88, 90, 91, 133),  # truncate, rename, mkdir, rmdir, link, unlink, chmod, mknod
    *(258, 259, 263, 264, 265, 266, 268, 316),  # the same with a folder
    *(160, 302),  # setrlimit, prlimit64
)
_ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def limit_process() -> None:
    """Bound addresses, written files and computing time of this process and of those that it starts."""
    for what, most in (
        (resource.RLIMIT_AS, ADDRESSES),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))


def memory_of(number: int) -> int:
    """Bytes of memory in use by a process and by those that it started; 0 if it has ended."""
    try:
        first = psutil.Process(number)
        return sum(each.memory_info().rss for each in (first, *first.children(recursive=True)))
    except psutil.Error:
        return 0


def jailed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes the same call in a thread of its own, which can neither start processes, nor open files or
    sockets. It needs no privileges. Raises what the call raises, and OSError if the kernel has no such filter."""

    def inside(*arguments: Any, **named: Any) -> Any:
        held: dict[str, Any] = {}

        def run() -> None:
            try:
                _deny()
                held["value"] = call(*arguments, **named)
            except BaseException as error:  # raised again in the thread that asked
                held["error"] = error

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if "error" in held:
            raise held["error"]
        return held["value"]

    return inside


def _deny() -> None:
    """Refuse the system calls of DENIED in this thread from now on."""
    numbers = sorted(set(DENIED))
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(numbers) + 3, _ARCHITECTURE), (_LOAD, 0, 0, 0)]
    code.append((_AT_LEAST, len(numbers) + 1, 0, 0x40000000))  # the calls of x32
    code += [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    text = b"".join(struct.pack("HBBI", *each) for each in code)
    held = ctypes.create_string_buffer(text, len(text))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(held)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
