"""Limits of CUDA, and those of the emulated device."""

from typing import Any

#: Threads of a block, on every device so far.
MAX_THREADS_PER_BLOCK = 1024
#: Blocks of a cluster, on every device that has clusters.
PORTABLE_CLUSTER_BLOCKS = 8
#: Blocks of a cluster, on the devices that take the most; a launch of more than the portable ones must ask for them.
MAX_CLUSTER_BLOCKS = 16
#: Bytes of shared memory that a block may use without asking.
DEFAULT_SHARED_BYTES = 48 * 1024

#: Limits of the emulated device, those of compute capability 9.0: threads, bytes, blocks along x, y, z,
#: multiprocessors. It has few multiprocessors, so that a kernel with as many blocks as multiprocessors gives each of
#: them several tiles.
EMULATED_LIMITS: dict[str, Any] = {
    "sms": 4,
    "max_threads_per_block": MAX_THREADS_PER_BLOCK,
    "shared_bytes_per_block": DEFAULT_SHARED_BYTES,
    "shared_bytes_per_block_optin": 232448,
    "shared_bytes_per_sm": 233472,
    "warp_size": 32,
    "max_grid": [2147483647, 65535, 65535],
}
