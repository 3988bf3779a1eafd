"""What kernels compute, bit for bit, in NumPy and in Python's integers: references for tests, and the tests of them."""
