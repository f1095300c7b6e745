"""Losses, optimizers, and gradients that a model states."""
