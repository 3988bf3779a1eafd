// CUDA has `assert` without a header: it is in intrinsics.h.
