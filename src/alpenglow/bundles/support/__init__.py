"""Functions that LLVM calls by name and a bundle brings along."""
