"""From graphs to model files of other programs, a package a format."""
