// A stand-in: kernels need nothing of cuBLAS.
#pragma once
