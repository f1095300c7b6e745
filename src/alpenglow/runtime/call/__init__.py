"""A call: its inputs and outputs, its deadline, and those that wait for it."""
