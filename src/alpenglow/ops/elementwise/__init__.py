"""Operators that compute each element from those at the same place."""
