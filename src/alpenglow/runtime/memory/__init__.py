"""Arenas, argument tables, and weights larger than memory."""
