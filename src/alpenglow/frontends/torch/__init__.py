"""PyTorch: exported programs and traced graphs.

Nothing here imports torch: whoever brings an object of torch's has imported it.
"""
