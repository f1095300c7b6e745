"""Compile an ONNX model, run it and compare it with the NumPy interpreter."""

import numpy as np
import onnx

import alpenglow as ag

model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    small (float[1, 3, 32, 32] image) => (float[1, 10] scores) {
        features = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (image, w)
        positive = Relu (features)
        means = GlobalAveragePool (positive)
        flat = Flatten (means)
        scores = MatMul (flat, v)
    }""")
rng = np.random.default_rng(0)
for name, shape in {"w": (8, 3, 3, 3), "v": (8, 10)}.items():
    weights = rng.standard_normal(shape, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))

# A path or the bytes of a file are accepted, too.
exe = ag.compile(model)
print("inputs:", exe.inputs)
print("outputs:", exe.outputs)

image = rng.standard_normal((1, 3, 32, 32), np.float32)
scores = exe(image)
print("scores:", scores.round(3)[0])

# The interpreter evaluates each operator in NumPy.
expected = ag.compile(model, target="interpreter")(image)
print("agrees with the interpreter:", np.allclose(scores, expected, rtol=1e-4, atol=1e-5))
