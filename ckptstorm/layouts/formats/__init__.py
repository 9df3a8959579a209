"""Record formats that several layouts share, and the buffers that stand between them and the kernel."""
