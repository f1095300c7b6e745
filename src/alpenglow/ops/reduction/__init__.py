"""Operators that combine the elements along axes, and normalization by what they give."""
