// Of the driver's API what a kernel names: the tensor map that it is given.
#pragma once
typedef struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
} CUtensorMap;
