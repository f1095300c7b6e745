"""StableHLO: programs of JAX and others, as text, as portable bytecode, or exported."""
