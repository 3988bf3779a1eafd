// NVRTC has no assert: what it would test is not tested.
#pragma once
#undef assert
#define assert(condition) ((void)0)
