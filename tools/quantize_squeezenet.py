"""Quantize SqueezeNet to int8 with ONNX Runtime, calibrated on sample pictures.

A script of its own because it alone needs ONNX Runtime, which users of the compiler need not have.

    python tools/quantize_squeezenet.py FORM FLOAT.onnx INPUTS.npz QUANTISED.onnx

INPUTS.npz holds the calibration inputs, one array of shape [1, 3, 227, 227] each. The result has
u8 activations, s8 weights with a scale for each output channel, and i32 biases; FORM says how that
is written: QDQ, as float operators between QuantizeLinear and DequantizeLinear; or QOperator, as
QLinearConv and the like.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)


class Pictures:
    """Hands the calibration inputs to ONNX Runtime, one by one."""

    def __init__(self, arrays: Iterator[NDArray[Any]]) -> None:
        self._arrays = arrays

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        array = next(self._arrays, None)
        return None if array is None else {"x": array}


def main(form: str, source: str, inputs: str, target: str) -> None:
    with np.load(inputs) as arrays:
        quantize_static(
            source,
            target,
            Pictures(arrays[key] for key in sorted(arrays)),
            quant_format=QuantFormat[form],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
