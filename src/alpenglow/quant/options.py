"""What a caller can choose about quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from alpenglow.base.errors import OptionError
from alpenglow.quant.calibrate import Calibration, check
from alpenglow.quant.schema import SCHEMAS, Schema

Precision = Literal["int8", "int16"]
Granularity = Literal["channel", "row", "tensor"]
Bias = Literal["int32", "int8", "float"]
WeightsOnly = Literal["none", "int8", "int4"]
Compute = Literal["f32", "bf16"]


@dataclass(frozen=True, slots=True)
class QuantOptions:
    """Options of `quantize`.

    `precision` is that of activations and weights, `schema` how activations are stored (weights
    are always symmetric), and `calibration` how their ranges are chosen; `percentile` belongs to
    the calibration of that name.  `granularity` says what has a scale of its own: each output
    channel ("channel"), each output of fully connected layers ("row"), or a whole weight
    ("tensor").  `bias` is stored in i32 in steps of the sums, in i8 in steps of its own, or as it
    is.

    `weights_only` stores weights, and nothing else, in that type; it needs no profile.  Its scales
    are one for `group` neighbouring inputs of an output (0: one for each output), and products are
    taken in `compute`.

    `keep` names what stays as it is: layers or values by name, operators by kind ("conv").
    `only`, if not empty, names the layers that are converted.  With `convert_placeholders` inputs
    and outputs of the graph that are quantised are given and returned so.
    """

    precision: Precision = "int8"
    schema: Schema = "asymmetric"
    calibration: Calibration = "mse"
    percentile: float = 99.99
    granularity: Granularity = "channel"
    bias: Bias = "int32"
    weights_only: WeightsOnly = "none"
    group: int = 0
    compute: Compute = "f32"
    keep: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    convert_placeholders: bool = False

    def __post_init__(self) -> None:
        named: tuple[tuple[str, Any], ...] = (("keep", self.keep), ("only", self.only))
        for name, names in named:
            if isinstance(names, str):
                raise OptionError(f"{name} is the string '{names}', expected a set of names")
            object.__setattr__(self, name, frozenset(names))
        choices: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
            ("precision", self.precision, get_args(Precision)),
            ("schema", self.schema, SCHEMAS),
            ("granularity", self.granularity, get_args(Granularity)),
            ("bias", self.bias, get_args(Bias)),
            ("weights_only", self.weights_only, get_args(WeightsOnly)),
            ("compute", self.compute, get_args(Compute)),
        )
        for name, value, known in choices:
            if value not in known:
                raise OptionError(f"{name} is '{value}', expected one of {', '.join(known)}")
        check(self.calibration, self.percentile)
        if self.group < 0 or (self.group and self.weights_only == "none"):
            raise OptionError(
                f"group is {self.group}, expected 0, or a number of inputs with weights_only"
            )
        if self.compute != "f32" and self.weights_only == "none":
            raise OptionError(f"compute is {self.compute}, expected f32 without weights_only")
        if self.convert_placeholders and self.weights_only != "none":
            raise OptionError("convert_placeholders is not supported with weights_only")

    @property
    def bits(self) -> Literal[8, 16]:
        """The bits of an activation."""
        return 16 if self.precision == "int16" else 8

    @property
    def power2(self) -> bool:
        """Whether scales are powers of two."""
        return self.schema == "symmetric_power2"

    @property
    def weight_dtype(self) -> str:
        """The element type of weights."""
        if self.weights_only != "none":
            return {"int8": "i8", "int4": "i4"}[self.weights_only]
        return f"i{self.bits}"
