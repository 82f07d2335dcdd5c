"""Views: other shapes of the same numbers. A view copies nothing, and writing through it changes the original.

    PYTHONPATH=python python3 examples/python/tensor_views.py

prints

    strides  x (4, 1)  x.T (1, 4)  x[:, 1::2] (4, 2)
    bytes of four views: 0
    bytes of one copy: 96
    tensor([[ 0,  1,  2,  3],
            [ 4, -1,  6, -1],
            [ 8,  9, 10, 11]])
"""
import tally

x = tally.arange(12).reshape(3, 4)
# Element (i, j) is at i * stride(0) + j * stride(1): a transpose swaps strides, a slice multiplies them.
print(f"strides  x {x.stride()}  x.T {x.T.stride()}  x[:, 1::2] {x[:, 1::2].stride()}")

with tally.ledger() as bill:
    x.T, x[:, 1::2], x.view(2, 6), x[1].expand(5, 4)
print("bytes of four views:", bill.bytes)
# Rows of the transpose are columns of x, which no stride can put one behind the other: this is a copy.
with tally.ledger() as bill:
    x.T.contiguous()
print("bytes of one copy:", bill.bytes // 2)  # read once, written once

x[1, 1::2] = -1  # writes through a view of a view
print(x)
