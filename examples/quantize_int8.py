"""Quantize a small network to int8 from calibration samples, and measure the error."""

import numpy as np

import alpenglow as ag
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.ops.window.pooling import MaxPool

rng = np.random.default_rng(0)


def weights(g, *shape):
    scale = np.prod(shape[1:]) ** -0.5
    return g.constant((rng.standard_normal(shape) * scale).astype(np.float32))


g = ag.Graph("digits")
x = g.input("image", "f32[1,1,12,12]")
x = g(Relu(), g(Conv(), x, weights(g, 8, 1, 5, 5), weights(g, 8), name="first"), name="edges")
x = g(MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), x, name="pooled")
x = g(Relu(), g(Conv(), x, weights(g, 16, 8, 3, 3), name="second"), name="shapes")
x = g(MatMul(), g(Reshape((1, 64)), x, name="flat"), weights(g, 64, 10), name="scores")
g.output("scores", x)

# The profile holds the range of each value over the samples.
samples = [rng.standard_normal((1, 1, 12, 12)).astype(np.float32) for _ in range(50)]
profile = ag.profile_ranges(g, samples)

# symmetric_uint8 is the schema with kernels on x86-64.
small = ag.quantize(g, profile, ag.QuantOptions(schema="symmetric_uint8"))
before, after = ag.compile(g), ag.compile(small)
noise = sum(((before(x) - after(x)) ** 2).sum() for x in samples)
signal = sum((before(x) ** 2).sum() for x in samples)
same = sum(before(x).argmax() == after(x).argmax() for x in samples)
print(g)
print(small)
print(f"signal to noise ratio: {10 * np.log10(signal / noise):.1f} dB")
print(f"samples with the same class: {same / len(samples):.2f}")
