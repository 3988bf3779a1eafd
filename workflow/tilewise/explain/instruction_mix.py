"""Instruction mix of a kernel: multiply-adds, operand movement, and all others."""

import pandas as pd

#: The four kinds of instructions -> columns of instructions.csv.
MIX = {
    "adds": ["multiply_add_instructions"],
    "shared": ["shared_loads_128", "shared_loads_64", "shared_loads_32", "matrix_loads", "shared_stores"],
    "elsewhere": [
        *("global_loads_128", "global_loads_64", "global_loads_32", "async_copies", "tensor_copies"),
        *("global_stores", "spills"),
    ],
    "others": ["integer", "arithmetic", "moves", "synchronisation", "control", "other"],
}


def loop_mix(rows: pd.DataFrame) -> pd.DataFrame:
    """The kinds of instructions in each row's loop, in percent of the loop."""
    shares = {name: (100 * rows[own].sum(axis=1) / rows["instructions"]).astype("float64") for name, own in MIX.items()}
    return rows.assign(**shares)
