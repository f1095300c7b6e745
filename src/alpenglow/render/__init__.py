"""Kernels as the text of a language: LLVM IR, C11, OpenCL C."""
