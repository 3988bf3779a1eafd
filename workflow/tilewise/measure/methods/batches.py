"""Batched products of one shape, in turns as in the task `sizes`."""

import dataclasses

from tilewise.measure.methods.sizes import Sizes


class Batches(Sizes):
    """Its rows are in a separate file, so that no table takes a batch for one product of its shape."""

    name = "batches"
    reading = dataclasses.replace(Sizes.reading, batches=True)
