"""Ctrl-C and kill at random moments: what is kept, in memory and on disk, stays sound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

posix = os.name == "posix"

NETWORKS = textwrap.dedent('''
    import signal, sys, time, warnings
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
    import alpenglow as ag

    warnings.simplefilter("error", ResourceWarning)
    F = TensorProto.FLOAT

    def network(kind, width):
        """A net of fixed extents, of open ones, or one with a loop."""
        w = np.random.default_rng(width).standard_normal((width, width)).astype(np.float32)
        shape = [4 if kind == "fixed" else "n", width]
        body = helper.make_graph(
            [helper.make_node("MatMul", ["h", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["k"]),
             helper.make_node("Identity", ["go"], ["on"])], "body",
            [helper.make_tensor_value_info("i", TensorProto.INT64, []),
             helper.make_tensor_value_info("go", TensorProto.BOOL, []),
             helper.make_tensor_value_info("h", F, None)],
            [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
             helper.make_tensor_value_info("k", F, None)])
        nodes = [helper.make_node("MatMul", ["x", "w"], ["a"])]
        nodes += [helper.make_node("Erf", ["a"], ["b"])]
        nodes += [helper.make_node("Loop", ["three", "", "b"], ["c"], body=body)
                  if kind == "loop" else helper.make_node("Tanh", ["b"], ["c"])]
        nodes += [helper.make_node("Softmax", ["c"], ["y"], axis=-1)]
        graph = helper.make_graph(
            nodes, f"net{width}", [helper.make_tensor_value_info("x", F, shape)],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.int64(3), "three")])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    CASES = [(k, w) for w in (5, 20) for k in ("fixed", "open", "loop")]

    def feeds(kind, width, rows):
        rows = 4 if kind == "fixed" else rows
        return {"x": np.linspace(-1, 1, rows * width, dtype=np.float32).reshape(rows, width)}

    def bits(exe, kind, width):
        return b"".join(exe.run(feeds(kind, width, r))["y"].tobytes() for r in (1, 3, 40))
''')

FILL = NETWORKS + textwrap.dedent("""
    print("ready", flush=True)
    for kind, width in CASES:
        exe = ag.compile(network(kind, width), threads=2)
        print(kind, width, bits(exe, kind, width).hex()[:64], flush=True)
""")

INTERRUPT = NETWORKS + textwrap.dedent("""
    import faulthandler

    faulthandler.dump_traceback_later(200, exit=True)  # says where it hangs
    for kind in ("fixed", "open", "loop"):
        # An interrupted import leaves locks of CPython and half of a module: import all before.
        bits(ag.compile(network(kind, 7), threads=2), kind, 7)

    def interrupted(seconds, action):
        # Python ignores an interrupt that arrives in a finalizer: another one follows.
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        try:
            return action()
        except KeyboardInterrupt:
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    random = np.random.default_rng(1)
    caught = 0
    known = {}
    begin = time.monotonic()
    while caught < 30 and time.monotonic() - begin < 15:
        kind, width = CASES[random.integers(len(CASES))]
        model = network(kind, width)
        made = []
        def work():
            made.append(ag.compile(model, threads=2))
            while True:
                bits(made[0], kind, width)
        assert interrupted(float(random.exponential(0.15)) + 1e-3, work) is None
        caught += 1
        exe = ag.compile(model, threads=2)
        found = {bits(e, kind, width) for e in (*made, exe)}
        assert found == {known.setdefault((kind, width), bits(exe, kind, width))}, (kind, width)
    print(caught)
""")


def python(script: str, cache: Path | str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "ALPENGLOW_CACHE": str(cache)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not posix, reason="there are no timers that interrupt here")
def test_ctrl_c_while_compiling_and_running_leaves_all_sound(tmp_path: Path) -> None:
    process = python(INTERRUPT, tmp_path / "cache")
    out, err = process.communicate(timeout=300)

    assert process.returncode == 0, err
    assert int(out) >= 5


@pytest.mark.slow
@pytest.mark.skipif(not posix, reason="there is no kill -9 here")
def test_a_cache_that_two_fill_survives_the_death_of_one(tmp_path: Path) -> None:
    expected = python(FILL, "off").communicate(timeout=300)[0]
    random = np.random.default_rng(3)
    for turn in range(2):
        cache = tmp_path / f"cache{turn}"
        dying, living = python(FILL, cache), python(FILL, cache)
        assert dying.stdout is not None and dying.stdout.readline() == "ready\n"
        for _ in range(int(random.integers(0, 5))):
            dying.stdout.readline()
        dying.send_signal(signal.SIGKILL)
        dying.communicate()
        out, err = living.communicate(timeout=300)

        assert (living.returncode, out, err) == (0, expected, "")

        later = python(FILL, cache)

        assert later.communicate(timeout=300) == (expected, "")
