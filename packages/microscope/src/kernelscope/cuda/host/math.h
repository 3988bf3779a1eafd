// Empty: NVRTC knows the functions of the device without it.
#pragma once
