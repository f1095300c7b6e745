"""Options of quantization."""

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
    """Collect the options of `quantize`.

    Args:
        precision: the element type of activations and weights: "int8" or "int16".
        schema: how activations are stored: "asymmetric", "symmetric", "symmetric_uint8" or
            "symmetric_power2" (scales are powers of two).  Weights are always symmetric.
        calibration: how ranges are chosen from the profile: "minmax", "percentile", "mse" (least
            mean squared error) or "entropy".
        percentile: the share of values in percent that the range of calibration "percentile" holds.
        granularity: what gets a scale of its own: "channel" (each output channel), "row" (each
            output of fully connected layers) or "tensor" (each weight).
        bias: how biases are stored: "int32" with the scale of the accumulators, "int8" with a scale
            of their own, or "float".
        weights_only: "int8" or "int4" quantizes only weights and needs no profile; "none": weights
            and activations.
        group: the number of neighbouring inputs of an output that share a scale, with
            `weights_only`; 0: one scale for each output.
        compute: the element type of matrix multiplications, with `weights_only`: "f32" or "bf16".
        keep: names of layers and values, and kinds of operators ("conv"), that are not quantized.
        only: the names of the layers that are quantized; empty: all.
        convert_placeholders: True passes and returns quantized inputs and outputs as integers.

    Raises:
        OptionError: if an option has a wrong value, or two of them exclude each other.

    Example:
        >>> graph = ag.load("model.onnx", {"x": (1, 8)})
        >>> options = ag.QuantOptions(weights_only="int4", group=4)
        >>> ag.quantize(graph, options=options).name
        'tiny'
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
        """The number of bits of an activation."""
        return 16 if self.precision == "int16" else 8

    @property
    def power2(self) -> bool:
        """True if scales are powers of two."""
        return self.schema == "symmetric_power2"

    @property
    def weight_dtype(self) -> str:
        """The element type of weights."""
        if self.weights_only != "none":
            return {"int8": "i8", "int4": "i4"}[self.weights_only]
        return f"i{self.bits}"
