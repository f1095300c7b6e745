"""Generate tokens with a one-layer decoder whose KV cache is kept in a session."""

import numpy as np
import onnx

import alpenglow as ag

VOCABULARY, WIDTH = 32, 16

decoder = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    decoder (int64[1, S] tokens, float[1, P, 16] "past.0.key", float[1, P, 16] "past.0.value")
        => (float[1, S, 32] logits,
            float[1, T, 16] "present.0.key", float[1, T, 16] "present.0.value") {
        x = Gather (embedding, tokens)
        query = MatMul (x, wq)
        key = MatMul (x, wk)
        value = MatMul (x, wv)
        "present.0.key" = Concat <axis = 1> ("past.0.key", key)
        "present.0.value" = Concat <axis = 1> ("past.0.value", value)
        across = Transpose <perm = [0, 2, 1]> ("present.0.key")
        scores = MatMul (query, across)
        shares = Softmax <axis = -1> (scores)
        mixed = MatMul (shares, "present.0.value")
        sum = Add (x, mixed)
        logits = MatMul (sum, out)
    }""")
rng = np.random.default_rng(1)
shapes = {"embedding": (VOCABULARY, WIDTH), "out": (WIDTH, VOCABULARY)}
for name, shape in {**shapes, **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH))}.items():
    weights = (rng.standard_normal(shape) / WIDTH**0.5).astype(np.float32)
    decoder.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))

# With state=True, inputs and outputs named past… and present… become the cache of a session.
exe = ag.compile(decoder, state=True, last=["logits"])
session = exe.session(length=64)


def generate(session, token, count):
    """Return `count` tokens after `token`, each the most probable one."""
    tokens = []
    for _ in range(count):
        logits = session(np.array([[token]]))
        token = int(logits[0, -1].argmax())
        tokens.append(token)
    return tokens


for token in (3, 14, 15):
    session(np.array([[token]]))
print("rows in the cache after the prompt:", session.rows)

branch = session.fork()
tokens = generate(session, 9, 6)
print("generated:", tokens)
print("rows in the cache:", session.rows, "and in the fork:", branch.rows)
print("the fork generates the same:", generate(branch, 9, 6) == tokens)
