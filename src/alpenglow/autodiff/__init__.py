"""Reverse-mode differentiation: `gradients` appends to a graph what computes its derivatives.

`custom_gradient` states them.
"""

from alpenglow.autodiff.custom import custom_gradient, stop_gradient
from alpenglow.autodiff.reverse import gradients, leading_to, substituted

__all__ = ["custom_gradient", "gradients", "leading_to", "stop_gradient", "substituted"]
