"""A call: its inputs, outputs and deadline, and who waits for it."""
