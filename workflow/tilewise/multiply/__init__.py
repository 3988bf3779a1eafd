"""What `tilewise.matmul` does: `arguments` says which arrays it takes, `fastest` which kernel, `matmul` launches it."""
