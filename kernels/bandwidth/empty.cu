// Nothing: how long does a launch take by itself?
//
// The idea: what is left of an isolated time when the kernel does nothing is the machine's own share of every isolated
// time. It takes the arguments of a product, so that it is launched like one.
//
// Launch: block (1, 1); grid (m, n).

__global__ void empty(const float*, const float*, float*, int, int, int) {}
