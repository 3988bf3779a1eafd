// Empty: NVRTC knows memcpy and memset without it.
#pragma once
