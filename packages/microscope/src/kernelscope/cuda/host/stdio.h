// Empty: NVRTC compiles no host code, and the kernels of a file need nothing of this header.
#pragma once
