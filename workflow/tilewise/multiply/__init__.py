"""Implement `tilewise.matmul`: `arguments` checks arrays, `fastest` chooses the kernel, `matmul` launches it."""
