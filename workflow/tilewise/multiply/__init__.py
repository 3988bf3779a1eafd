"""Implement `tilewise.matmul`: `arguments` checks arrays, `fastest` ranks kernels, `copies` decides, `matmul` launches."""
