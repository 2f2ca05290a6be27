"""Triton kernels of our own for what surrounds the recurrences on a GPU. The plain torch forms stand in `layers`."""
