"""Reverse-mode differentiation: `gradients` appends to a graph what computes its derivatives."""

from alpenglow.autodiff.reverse import gradients, leading_to, substituted

__all__ = ["gradients", "leading_to", "substituted"]
