"""Branches: one of two regions runs, as data says (ONNX If, XLA conditional)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Control, Run
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.control.loop import FLAG, check_region

R = TypeVar("R")


class If(Control):
    """The results of the first region where `condition`, bool[], is true, else of the second.

    Inputs of both regions are xs.  Their outputs, the results, are of the same types.
    """

    @property
    def captures_from(self) -> int:
        return 1

    def infer(
        self, condition: TensorType, *xs: TensorType, regions: tuple[Graph, ...] = ()
    ) -> tuple[TensorType, ...]:
        if condition != FLAG:
            raise TypeRuleError(f"if: condition is {condition}, expected {FLAG}")
        return tuple(check_region(self, regions, 2, xs, ()))

    def run(
        self, regions: Sequence[R], run: Run[R], condition: Array, *arrays: Array
    ) -> list[Array]:
        return list(run(regions[0 if condition else 1], arrays))
