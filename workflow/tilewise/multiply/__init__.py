"""Implement `tilewise.matmul`: `arguments` checks, `fastest` ranks kernels, `copies` decides, `matmul` launches."""
