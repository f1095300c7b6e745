"""Converters for operators that work element by element."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import same
from alpenglow.ops import activation, arithmetic

same("Add", arithmetic.Add())
same("Sub", arithmetic.Sub())
same("Mul", arithmetic.Mul())
same("Div", arithmetic.Div())
same("Neg", arithmetic.Neg())
same("Abs", arithmetic.Abs())
same("Sign", arithmetic.Sign())
same("Floor", arithmetic.Floor())
same("Ceil", arithmetic.Ceil())
same("Round", arithmetic.Round())
same("Reciprocal", arithmetic.Reciprocal())
same("Relu", activation.Relu())
same("Sigmoid", activation.Sigmoid())
same("Tanh", activation.Tanh())
same("PRelu", activation.PRelu())
