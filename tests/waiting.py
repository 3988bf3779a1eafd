"""Waiting for other processes."""

import time

import psutil


def wait_until(condition, seconds=180, message="the condition"):
    """Wait for a condition and return its value; the test fails if the condition does not become true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {message}"
        time.sleep(0.1)
    return value


def has_ended(process):
    """Whether a process has ended or is a zombie that nobody waits for; then it does not hold any file or port."""
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
