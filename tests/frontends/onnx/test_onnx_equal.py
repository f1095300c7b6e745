"""Models in which one value stands at several places, beside ONNX Runtime.

The texts are what onnx.parser reads, without their heads.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import alpenglow as ag
from onnx_node import Array, runtimes

MODELS = {
    "identity outputs": """
        (float[3,4] x) => (float[3,4] a, float[3,4] b, float[3,4] c)
        { a = Identity(x) b = Identity(x) c = Relu(x) }
    """,
    "one value two outputs": """
        (float[3,4] x) => (float[3,4] a, float[3,4] b)
        { a = Relu(x) b = Identity(a) }
    """,
    "input is output": """
        (float[3,4] x) => (float[3,4] x, float[3,4] b)
        { b = Relu(x) }
    """,
    "constant outputs": """
        (float[3] x) => (float[3] a, float[3] b, float[3] c) <float[3] k = {1.0,2.0,3.0}>
        { a = Identity(k) b = Identity(k) c = Add(x,k) }
    """,
    "sum": """
        (float[3,4] x) => (float[3,4] a)
        { a = Sum(x,x,x) }
    """,
    "max": """
        (float[3,4] x) => (float[3,4] a, float[3,4] b, float[3,4] c)
        { a = Max(x,x,x) b = Min(x,x) c = Mean(x,x,x) }
    """,
    "where": """
        (float[3,4] x, bool[3,4] c) => (float[3,4] a)
        { a = Where(c,x,x) }
    """,
    "where computed": """
        (float[3,4] x) => (float[3,4] a)
        { c = Less(x,x) r = Relu(x) a = Where(c,r,r) }
    """,
    "einsum": """
        (float[4,4] x) => (float[4,4] a, float[4] b, float[4,4] c)
        { a = Einsum<equation="ij,jk->ik">(x,x) b = Einsum<equation="ij,ij->i">(x,x) c =
         Einsum<equation="ij,kj->ik">(x,x) }
    """,
    "gemm": """
        (float[4,4] x) => (float[4,4] a, float[4,4] b)
        { a = Gemm<transB=1>(x,x,x) b = Gemm<transA=1>(x,x,x) }
    """,
    "product of integers": """
        (uint8[4,4] x) => (int32[4,4] a)
        { a = MatMulInteger(x,x) }
    """,
    "if same": """
        (float[3] x, bool c) => (float[3] a)
        { r = Relu(x) a = If(c)<then_branch = t () => (float[3] p) { p = Identity(r) },
         else_branch = e () => (float[3] q) { q = Identity(r) }> }
    """,
    "if two outs": """
        (float[3] x, bool c) => (float[3] a, float[3] b)
        { r = Relu(x) a, b = If(c)<then_branch = t () => (float[3] p, float[3] p2) { p =
         Neg(r) p2 = Identity(p) }, else_branch = e () => (float[3] q, float[3] q2) { q =
         Identity(r) q2 = Identity(r) }> }
    """,
    "loop twice": """
        (float[3] x, int64 n, bool k) => (float[3] a, float[3] b)
        { a, b = Loop(n,k,x,x)<body = l (int64 i, bool ci, float[3] u, float[3] v) =>
         (bool co, float[3] s, float[3] t) { co = Identity(ci) s = Add(u,v) t = Sub(u,v)
         }> }
    """,
    "loop swap": """
        (float[3] x, float[3] y, int64 n, bool k) => (float[3] a, float[3] b)
        { a, b = Loop(n,k,x,y)<body = l (int64 i, bool ci, float[3] u, float[3] v) =>
         (bool co, float[3] s, float[3] t) { co = Identity(ci) s = Identity(v) t =
         Identity(u) }> }
    """,
    "loop same carried": """
        (float[3] x, int64 n, bool k) => (float[3] a, float[3] b, float[m,3] c,
          float[m2,3] d)
        { a, b, c, d = Loop(n,k,x,x)<body = l (int64 i, bool ci, float[3] u, float[3] v)
         => (bool co, float[3] s, float[3] t, float[3] z, float[3] z2) { co = Identity(ci)
         s = Add(u,u) t = Identity(s) z = Identity(s) z2 = Identity(u)}> }
    """,
    "scan twice": """
        (float[5,3] x, float[3] h) => (float[3] a, float[3] a2, float[5,3] b, float[5,3]
          c)
        { a, a2, b, c = Scan<num_scan_inputs=2, body = l (float[3] s, float[3] s2,
         float[3] u, float[3] v) => (float[3] t, float[3] t2, float[3] o, float[3] o2) { t
         = Add(s,u) t2 = Mul(s2,v) o = Identity(t) o2 = Add(t,t2) }>(h,h,x,x) }
    """,
    "rnn same": """
        (float[4,1,3] x, float[1,3,3] w) => (float[4,1,1,3] y, float[1,1,3] yh)
        { y, yh = RNN<hidden_size=3>(x,w,w) }
    """,
    "GRU": """
        (float[4,1,3] x, float[1,9,3] w) => (float[4,1,1,3] y)
        { y = GRU<hidden_size=3>(x,w,w) }
    """,
    "layernorm": """
        (float[2,4] x, float[4] s) => (float[2,4] y)
        { y = LayerNormalization(x,s,s) }
    """,
    "batch norm": """
        (float[2,4,3] x, float[4] s0) => (float[2,4,3] y)
        { s = Abs(s0) y = BatchNormalization(x,s,s,s,s) }
    """,
    "gathernd": """
        (int64[3] x) => (int64[3] y, int64[3] z)
        { y = Gather(x,x) z = GatherElements(x,x) }
    """,
    "scatter": """
        (int64[3] x) => (int64[3] y)
        { y = ScatterElements(x,x,x) }
    """,
    "clip": """
        (float[3] x, float m) => (float[3] y)
        { y = Clip(x,m,m) }
    """,
    "attention": """
        (float[1,2,4,8] x) => (float[1,2,4,8] y)
        { y = Attention(x,x,x) }
    """,
    "conv self": """
        (float[2,2,3,3] x) => (float[2,2,1,1] y)
        { y = Conv(x,x) }
    """,
    "conv self 1x1": """
        (float[16,16,1,1] x) => (float[16,16,1,1] y)
        { y = Conv(x,x) }
    """,
    "transposed conv self": """
        (float[2,2,3,3] x) => (float[2,2,5,5] y)
        { y = ConvTranspose(x,x) }
    """,
    "concat slices": """
        (float[4,6] x) => (float[8,12] y)
        { r = Relu(x) c = Concat<axis=0>(r,r) y = Concat<axis=1>(c,c) }
    """,
    "concat out": """
        (float[4,6] x) => (float[8,6] y, float[4,6] r)
        { r = Relu(x) y = Concat<axis=0>(r,r) }
    """,
    "x and x turned": """
        (float[4,4] x) => (float[4,4] y, float[4,4] z)
        { r = Relu(x) t = Transpose(r) y = Add(r,t) z = Sub(y,t) }
    """,
    "what is turned dies": """
        (float[40,40] x) => (float[40,40] y)
        { r = Relu(x) s = Softmax(r) t = Transpose(s) y = Add(s,t) }
    """,
    "slice shift": """
        (float[8,8] x) => (float[8,8] y) <int64[1] p={1}, int64[1] q={8}, int64[1] n={0},
          int64[1] o={1}>
        { r = Softmax(x) a = Slice(r,p,q,n) b = Slice(r,n,o,n) c = Concat<axis=0>(a,b) y =
         Add(r,c) }
    """,
    "reverse": """
        (float[8] x) => (float[8] y) <int64[1] p={-1}, int64[1] q={-100}, int64[1] n={0},
          int64[1] o={-1}>
        { r = Softmax(x) a = Slice(r,p,q,n,o) y = Add(r,a) }
    """,
    "expand self": """
        (float[1,8] x) => (float[8,8] y, float[8,8] z) <int64[2] s={8,8}, int64[2]
          t={8,1}>
        { r = Softmax(x) e = Expand(r,s) f = Transpose(e) y = MatMul(e,f) z = Mul(e,f) }
    """,
    "pow": """
        (float[4] x) => (float[4] y)
        { a = Abs(x) y = Pow(a,a) }
    """,
    "prelu": """
        (float[4] x) => (float[4] y)
        { y = PRelu(x,x) }
    """,
    "equal": """
        (float[4] x) => (bool[4] y, bool[4] z)
        { y = Equal(x,x) z = Less(x,x) }
    """,
    "split": """
        (float[4,6] x) => (float[4,2] a, float[4,2] b)
        { r = Relu(x) p, q, s = Split<num_outputs=3,axis=1>(r) a = Add(p,p) b = Mul(q,q) }
    """,
    "bitshift": """
        (uint8[4] x) => (uint8[4] y)
        { y = BitShift<direction="LEFT">(x,x) }
    """,
    "topk": """
        (float[2,6] x) => (float[2,3] a, int64[2,3] b) <int64[1] k={3}>
        { r = Relu(x) a, b = TopK(r,k) }
    """,
    "quantized product": """
        (float[4,4] x) => (float[4,4] y) <float s={0.1}, uint8 z={128}>
        { q = QuantizeLinear(x,s,z) d = DequantizeLinear(q,s,z) y = MatMul(d,d) }
    """,
    "quantized sum": """
        (float[4,4] x) => (uint8[4,4] y) <float s={0.1}, uint8 z={128}>
        { q = QuantizeLinear(x,s,z) d = DequantizeLinear(q,s,z) a = Add(d,d) y =
         QuantizeLinear(a,s,z) }
    """,
    "quantized concatenation": """
        (float[4,4] x) => (uint8[4,8] y) <float s={0.1}, uint8 z={128}>
        { q = QuantizeLinear(x,s,z) d = DequantizeLinear(q,s,z) a = Concat<axis=1>(d,d) y
         = QuantizeLinear(a,s,z) }
    """,
    "sums of itself": """
        (float[1,20,6,6] x, float[20] k) => (float[1,20,6,6] y, float[1,20,6,6] z)
        { n = InstanceNormalization(x,k,k) a = Add(n,n) y = Relu(a) z = Add(a,a) }
    """,
}


def drawn(random: np.random.Generator, v: onnx.ValueInfoProto) -> Array:
    """Return an array for an input; counts and conditions are such that bodies run."""
    t = v.type.tensor_type
    shape = [d.dim_value for d in t.shape.dim]
    match t.elem_type:
        case onnx.TensorProto.BOOL:
            return np.asarray(random.random(shape) < 0.5) if shape else np.array(True)
        case onnx.TensorProto.INT64:
            return np.arange(shape[0])[::-1].copy() if shape else np.array(3)
        case onnx.TensorProto.UINT8:
            return random.integers(0, 8, shape).astype(np.uint8)
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled(15)
def test_a_value_at_several_places(name: str, target: str) -> None:
    text = '<ir_version: 10, opset_import: ["" : 23]> g ' + MODELS[name]
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    feeds = {v.name: drawn(random, v) for v in model.graph.input}
    expected = runtimes(model, feeds)
    actual = ag.compile(model, target=target).run(feeds)

    assert [o.name for o in model.graph.output] == list(actual)
    for want, got in zip(expected, actual.values(), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)
