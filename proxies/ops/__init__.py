"""The recurrences of the linear mixers, one file each.

Every file opens with its recurrence, says it again as a plain loop (`..._recurrence`, any dtype, what the tests trust)
and gives the chunked form that training runs (`..._chunked`). The function without a suffix is the one door: it picks
the form for the device. Tensors are `[B, T, H, d]` and decays are logarithms, as in flash-linear-attention.
"""
