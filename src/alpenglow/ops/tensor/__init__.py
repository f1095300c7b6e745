"""Operators that move, pick, order, count or fill elements."""
