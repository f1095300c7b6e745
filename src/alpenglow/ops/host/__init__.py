"""Values that no graph holds, such as strings and sequences, and what the host computes of them."""
