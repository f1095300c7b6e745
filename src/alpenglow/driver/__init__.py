"""The driver: from a model to an Executable, through the compiler and what it made before."""
