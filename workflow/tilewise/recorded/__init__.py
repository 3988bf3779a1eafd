"""Runs that are kept and compared: `compare` two of them, `check` a recorded one, `record` one.

`commands` has the command line of all three.
"""
