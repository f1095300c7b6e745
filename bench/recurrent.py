"""Times recurrent networks of two versions of Alpenglow: results, gradients, memory.

    python bench/recurrent.py measure OUT.json        # with the version that is imported
    python bench/recurrent.py compare OLD.json … -- NEW.json …

`measure` compiles 30 networks for one thread: RNN, GRU and LSTM of ONNX, plain loops, and gradients
of layers, of 1 to 5,000 steps.  It writes the best time of a call, the size of the arena, and the
sums of results.  `compare` takes the best of several files of each version, and prints ratios.
Run the versions in turn, pinned, with nothing beside them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SECONDS = 0.6

Feeds = dict[str, Any]
Net = tuple[Any, Feeds]


def layer(op: str, steps: int, batch: int, units: int, **more: Any) -> Net:
    """Return an ONNX model of a layer over 32 features, and its feeds.

    `lengths` gives sequences random lengths up to half of the steps; the rest are attributes.
    """
    random, gates = np.random.default_rng(0), GATES[op]
    lengths, both = more.pop("lengths", False), more.get("direction") == "bidirectional"
    shapes = {"w": (gates * units, 32), "r": (gates * units, units), "b": (2 * gates * units,)}
    weights = [
        numpy_helper.from_array(
            (random.standard_normal((1 + both, *s)) / units**0.5).astype(np.float32), k
        )
        for k, s in shapes.items()
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, 32])]
    feeds: Feeds = {"x": random.standard_normal((steps, batch, 32)).astype(np.float32)}
    if lengths:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.INT32, [batch]))
        feeds["n"] = random.integers(1, max(2, steps // 2), batch).astype(np.int32)
    names = ["x", "w", "r", "b", *["n"] * lengths]
    node = helper.make_node(op, names, ["y", "h"], hidden_size=units, **more)
    results = [helper.make_empty_tensor_value_info(n) for n in ("y", "h")]
    graph = helper.make_graph([node], op, inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return model, feeds


def gradient(op: str, steps: int, batch: int, units: int, **more: Any) -> Net:
    """Return the graph of a layer's gradients for the sum of its results."""
    model, feeds = layer(op, steps, batch, units, **more)
    g = ag.load(model)
    y, x = g.outputs["y"], g.inputs["x"]
    weights = [v for v in g.constants() if v.array is not None and v.array.size > units]
    for i, dx in enumerate(ag.gradients(g, y, [x, *weights])):
        g.output(f"d{i}", dx)
    g.prune()
    return g, feeds


def loop(steps: int, batch: int, width: int) -> Net:
    """Return an ONNX Scan of h' = tanh(h W + x), whose rows are stacked."""
    random = np.random.default_rng(0)
    w = (random.standard_normal((width, width)) / width**0.5).astype(np.float32)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["p"]),
            helper.make_node("Add", ["p", "x"], ["s"]),
            helper.make_node("Tanh", ["s"], ["h1"]),
            helper.make_node("Identity", ["h1"], ["row"]),
        ],
        "body",
        [info(n, TensorProto.FLOAT, [batch, width]) for n in ("h", "x")],
        [info(n, TensorProto.FLOAT, [batch, width]) for n in ("h1", "row")],
    )
    node = helper.make_node("Scan", ["h0", "xs"], ["h", "y"], body=body, num_scan_inputs=1)
    shapes = {"h0": [batch, width], "xs": [steps, batch, width]}
    graph = helper.make_graph(
        [node], "scan", [info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_empty_tensor_value_info(n) for n in ("h", "y")],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    feeds = {k: random.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    return model, feeds


def nets() -> dict[str, Callable[[], Net]]:
    """Return what makes each network, by name."""
    made: dict[str, Callable[[], Net]] = {}
    both, after = {"direction": "bidirectional"}, {"linear_before_reset": 1}
    for op, more in (("LSTM", {}), ("GRU", {}), ("GRU", after), ("RNN", {})):
        name = op + " (reset after)" * bool(more)
        made |= {
            f"{name} 200 x 1 x 64": lambda o=op, m=more: layer(o, 200, 1, 64, **m),
            f"{name} 100 x 8 x 32": lambda o=op, m=more: layer(o, 100, 8, 32, **m),
            f"{name} 50 x 2 x 128, both ways": lambda o=op, m=more: layer(
                o, 50, 2, 128, **both, **m
            ),
            f"{name} 60 x 16 x 64, lengths": lambda o=op, m=more: layer(
                o, 60, 16, 64, lengths=True, **m
            ),
            f"{name} 100 x 4 x 64, gradients": lambda o=op, m=more: gradient(o, 100, 4, 64, **m),
        }
    made |= {
        "LSTM 1 x 1 x 64": lambda: layer("LSTM", 1, 1, 64),
        "LSTM 5000 x 1 x 32": lambda: layer("LSTM", 5000, 1, 32),
        "LSTM 1000 x 1 x 256": lambda: layer("LSTM", 1000, 1, 256),
        "LSTM 30 x 32 x 256": lambda: layer("LSTM", 30, 32, 256),
        "LSTM 10 x 8 x 1024": lambda: layer("LSTM", 10, 8, 1024),
        "GRU 5000 x 1 x 32": lambda: layer("GRU", 5000, 1, 32),
        "Scan 5000 x 2 x 8": lambda: loop(5000, 2, 8),
        "Scan 1000 x 2 x 64": lambda: loop(1000, 2, 64),
        "Scan 1000 x 2 x 256": lambda: loop(1000, 2, 256),
        "Scan 1 x 2 x 64": lambda: loop(1, 2, 64),
    }
    return made


def measured(net: Net) -> dict[str, Any]:
    model, feeds = net
    exe = ag.compile(model, threads=1)
    results = exe.run(feeds)
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        begin = time.perf_counter()
        exe.run(feeds)
        best = min(best, time.perf_counter() - begin)
    sums = {k: float(np.abs(v).sum(dtype=np.float64)) for k, v in results.items()}
    return {"us": best * 1e6, "arena": exe.artifact.program.arena, "sums": sums}


def main(words: list[str]) -> None:
    if words[0] == "measure":
        found = {}
        for name, make in nets().items():
            found[name] = measured(make())
            print(f"{name:44} {found[name]['us']:10.1f} us", flush=True)
        Path(words[1]).write_text(json.dumps(found))
        return
    at = words.index("--")
    old, new = (
        [json.loads(Path(p).read_text()) for p in paths] for paths in (words[1:at], words[at + 1 :])
    )
    print(f"{'network (steps x batch x units)':44} {'old us':>10} {'new us':>10} ratio arena error")
    for name in old[0]:
        a, b = (min(f[name]["us"] for f in files) for files in (old, new))
        x, y = old[0][name], new[0][name]
        arena = y["arena"] / max(1, x["arena"])
        error = max(abs(x["sums"][k] - s) / max(1.0, abs(s)) for k, s in y["sums"].items())
        print(f"{name:44} {a:10.1f} {b:10.1f} {b / a:6.3f} {arena:5.2f} {error:.0e}")


if __name__ == "__main__":
    main(sys.argv[1:])
