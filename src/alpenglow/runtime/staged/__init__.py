"""Models that are imported in parts, and their loops."""
