"""Loop forms of reductions and norms."""
