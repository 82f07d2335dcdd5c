"""The CUDA plugin of tally, libtally_cuda.so, which tally finds in this folder when a program first asks for a GPU.
There is nothing to import here: `pip install tally-cuda`, and device="cuda" works."""
