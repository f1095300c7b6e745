"""One case of `tools/cliffs.py` in each runtime: compared, and timed by interleaved bursts.

This file runs as the process of a worker and answers requests of `cliffs.py`, one line of JSON
each, as `alpenglow.measure.server` does.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

import alpenglow as ag
import cliff_cases
import cliff_moves
import cliff_windows
from alpenglow.base.errors import AlpenglowError
from alpenglow.measure import server
from alpenglow.measure.contest import Here, Length, compete, middles
from alpenglow.measure.others import Others
from cliff_draw import BF16, Array, Case, draw

Row = dict[str, Any]
Call = Callable[[], Any]

MODULES = (cliff_cases, cliff_moves, cliff_windows)
"""The modules that register families."""

SCALES = (1, 4, 16)
"""A case whose fastest runtime takes less than LEAST is drawn anew, so many times as large."""

LEAST = 20e-6
FAR = 8.0
"""A runtime that takes so many times as long as the fastest is timed by few calls."""

LENGTH = Length(rounds=4, calls=1, seconds=0.01, warm=1)
CLIFF = 2.0
"""A case that takes so many times as long as in the best peer is timed twice."""

OURS, ORT = "alpenglow", "onnxruntime"
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}


def measured(op: str, number: int, seed: int, scale: int | None = None) -> Row:
    """Return the row of a case; it is enlarged until the fastest runtime takes LEAST."""
    scales = SCALES if scale is None else (scale,)
    for factor in scales:
        case = draw(op, number, seed, factor)
        name = f"{op} {number} seed {seed} scale {factor}"
        row = {"case": name, "op": op, "text": str(case), **ran(case, factor < scales[-1])}
        if "short" not in row:
            break
    return row


def ran(case: Case, enlarge: bool) -> Row:
    """Compile, compare and time a case; say that it is short if it is to be enlarged then."""
    row: Row = {"seconds": {}, "absent": {}}
    model = case.model().SerializeToString()
    calls = peers(case, model, row["absent"])
    results = {n: r for n, c in calls.items() if (r := outcome(n, c, row["absent"])) is not None}
    begin = time.perf_counter()
    try:
        exe = ag.compile(model, threads=1)
        feeds = case.feeds
        ours = outputs(exe.run(feeds).values())
    except AlpenglowError as error:
        row["refused"] = " ".join(str(error).split())[:300]
    # Whatever else is raised is a result.
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    else:
        row["compile_seconds"] = time.perf_counter() - begin
        row |= judged(case, ours, results, row["absent"])
        chosen: dict[str, Call] = {OURS: lambda: exe.run(feeds)}
        chosen |= {n: calls[n] for n in results if n not in row["absent"]}
        if enlarge and "wrong" not in row and is_short(chosen):
            return {"short": True}
        row |= timed(chosen)
    return row


def is_short(calls: Mapping[str, Call]) -> bool:
    """Return True if the fastest runtime takes less than LEAST."""
    return min(min(server.times(call, 2, 5)) for call in calls.values()) < LEAST


def peers(case: Case, model: bytes, absent: dict[str, str]) -> dict[str, Call]:
    """Return a call for each other runtime that has the case; note why others have not."""
    calls: dict[str, Call] = {}
    given = [x for x in case.operands if x is not None]
    if any(x.dtype == BF16 for x in given) or case.attributes.get("to") == 16:
        absent[ORT] = "bf16"
    else:
        try:
            session = in_onnxruntime(model)
            feeds = case.feeds
            calls[ORT] = lambda: session.run(None, feeds)
        # Its exceptions have no root of their own.
        except Exception as error:
            absent[ORT] = " ".join(str(error).split())[:200]
    if (of_numpy := case.numpy) is not None and not any(x.dtype == BF16 for x in given):
        calls["numpy"] = lambda: of_numpy(*given)
    if (of_torch := case.torch) is not None:
        torch = import_module("torch")
        tensors = [as_tensor(torch, x) for x in given]
        calls["torch"] = lambda: of_torch(torch, *tensors)
    return calls


def in_onnxruntime(model: bytes) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def as_tensor(torch: Any, x: Array) -> Any:
    if x.dtype == BF16:
        words = torch.from_numpy(np.ravel(x).view(np.int16))
        return words.view(torch.bfloat16).reshape(x.shape)
    return torch.from_numpy(np.ascontiguousarray(x).reshape(x.shape))


def outcome(name: str, call: Call, absent: dict[str, str]) -> list[Array] | None:
    """Return the results of a peer, or None if it raises; note why."""
    try:
        return outputs(call())
    except Exception as error:
        absent[name] = " ".join(str(error).split())[:200]
        return None


def outputs(found: Any) -> list[Array]:
    """Return results as a list of arrays, whatever a runtime returns them in."""
    if isinstance(found, np.ndarray | np.generic) or hasattr(found, "numpy"):
        found = [found]
    return [as_array(x) for x in leaves(found)]


def leaves(found: Any) -> list[Any]:
    nested = isinstance(found, list | tuple)
    return [y for x in found for y in leaves(x)] if nested else (
        [found] if hasattr(found, "dtype") else [y for x in found for y in leaves(x)]
    )  # fmt: skip


def as_array(x: Any) -> Array:
    if hasattr(x, "numpy"):
        torch = import_module("torch")
        if x.dtype == torch.bfloat16:
            return np.asarray(x.contiguous().view(torch.int16).numpy().view(BF16))
        return np.asarray(x.numpy())
    return np.asarray(x)


def judged(case: Case, ours: list[Array], results: dict[str, list[Array]],
           absent: dict[str, str]) -> Row:  # fmt: skip
    """Compare with ONNX Runtime, or with another peer where it has no kernel.

    A peer that differs from ONNX Runtime and from us is not timed: it computes something else.
    """
    differing = {
        name: difference(case, ours, wanted)
        for name, wanted in results.items()
        if name == ORT or (case.alike or name != "torch")
    }
    if ORT in differing:
        others = [n for n, words in differing.items() if n != ORT and not words]
        for name in differing:
            if name != ORT and differing[name] and not differing[ORT]:
                absent[name] = f"differs: {differing[name]}"
        if words := differing[ORT]:
            agreeing = f"; agrees with {', '.join(others)}" if others else ""
            return {"wrong": f"{words}{agreeing}{_interpreted(case, ours)}"}
        return {}
    if differing and all(differing.values()):
        name, words = next(iter(differing.items()))
        return {"wrong": f"from {name}: {words}{_interpreted(case, ours)}"}
    return {}


def _interpreted(case: Case, ours: list[Array]) -> str:
    """Say whether the interpreter returns the same as compiled code."""
    exe = ag.compile(case.model().SerializeToString(), "interpreter")
    words = difference(case, ours, outputs(exe.run(case.feeds).values()))
    return f"; from the interpreter: {words}" if words else "; the interpreter agrees"


def difference(case: Case, ours: list[Array], wanted: list[Array]) -> str:
    """Say how results differ by more than rounding; "" if they do not."""
    for k, (got, right) in enumerate(zip(ours, wanted, strict=False)):
        if got.shape != right.shape:
            return f"result {k} has shape {got.shape}, expected {right.shape}"
        if got.size and (words := _difference(case, got, right)):
            return f"result {k}: {words}"
    return ""


def _difference(case: Case, got: Array, right: Array) -> str:
    dtypes = {str(x.dtype) for x in (got, right)}
    if right.dtype.kind in "biu":
        apart = np.abs(got.astype(np.float64) - right.astype(np.float64))
        few = case.ties and apart.max() <= 1 and (apart > 0).mean() < 0.02
        if few or not apart.any():
            return ""
        return f"{int((apart > 0).sum())} of {apart.size} integers differ, by up to {apart.max():g}"
    types = {str(x.dtype) for x in case.operands if x is not None} | dtypes
    tolerance = max(TOLERANCES.get(t, 0.0) for t in types)
    if case.ties:
        tolerance = max(tolerance, 2e-2)
    exact, close = right.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(exact)
    same = np.array_equal(exact[~finite], close[~finite], equal_nan=True)
    if not same or not np.isfinite(close[finite]).all():
        return f"{int((~np.isfinite(close)).sum())} infinite or NaN, expected {(~finite).sum()}"
    scale = max(float(np.abs(exact[finite]).max(initial=0)), 1e-30)
    apart = np.abs(exact - close)[finite]
    if apart.max(initial=0) <= tolerance * scale:
        return ""
    return f"differs by {apart.max():.2e}, where the largest element is {scale:.2e}"


def timed(calls: Mapping[str, Call]) -> Row:
    """Return the seconds of a call in each runtime, timed again if it is a cliff."""
    others = Others()
    seconds = once(calls)
    if cliff(seconds):
        again = once(calls)
        if ratio(again) < ratio(seconds):
            seconds = again
    return {"seconds": seconds, "others": others.cpus()}


def once(calls: Mapping[str, Call]) -> dict[str, float]:
    """Return the least of the medians of bursts; what is far slower is called three times."""
    few = {name: min(server.times(call, 1, 2)) for name, call in calls.items()}
    near = {n: Here(c) for n, c in calls.items() if few[n] < FAR * min(few.values())}
    bursts = compete(near, LENGTH)
    return few | {name: min(middles(found)) for name, found in bursts.items()}


def ratio(seconds: Mapping[str, float]) -> float:
    """Return how many times as long as in the best peer a call takes; 0 without a peer."""
    best = min((s for n, s in seconds.items() if n != OURS), default=float("inf"))
    return seconds[OURS] / best


def cliff(seconds: Mapping[str, float]) -> bool:
    return ratio(seconds) > CLIFF


class Server(server.Server):
    """Answers requests for cases."""

    def __init__(self) -> None:
        super().__init__(server.ONNX_RUNTIME, 1)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        row = measured(request["op"], request["number"], request["seed"], request.get("scale"))
        gc.collect()
        return row


def main() -> None:
    """Answer requests until there are no more, with PyTorch on one thread."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    with torch.inference_mode(), np.errstate(all="ignore"):
        server.serve(Server(), sys.argv[3])


if __name__ == "__main__":
    main()
