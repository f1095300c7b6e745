"""What can be said of a model or a machine, for reading."""
