"""One network of the zoo in a process of its own: compiled, called, timed, held against its peer.

    python tools/zoo_measure.py fixed|open MODEL WEIGHTS INPUTS.npz ...

prints a line of JSON.  The peer is ONNX Runtime, its graph optimisations off for results and on
for times; it is imported late, so that the peak of memory is ours.  `tools/zoo.py` calls this.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError

Array = NDArray[Any]
Feeds = dict[str, Array]
Row = dict[str, Any]

FLOOR = 1e-3
RELATIVE = {"float": 1e-4, "f16": 5e-3, "int8": 2e-2}
NUDGE = 2e-7
ROUNDS, SECONDS, FEWEST = 400, 2.0, 3


def main() -> None:
    how, model, weights, *files = sys.argv[1:]
    inputs = [_inputs(Path(file)) for file in files]
    row: Row = {}
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        try:
            (fixed if how == "fixed" else extents_open)(Path(model), weights, inputs, row)
        # Whatever is raised is a result: the table tells it.
        except Exception as error:
            row["refused"] = _told(error)
    row["warned"] = list(dict.fromkeys(str(w.message) for w in caught))
    print(json.dumps(row))


def fixed(model: Path, weights: str, inputs: list[Feeds], row: Row) -> None:
    """Compile with the extents of the first inputs; compare, and time both."""
    feeds = inputs[0]
    start = time.perf_counter()
    exe = ag.compile(model, threads=1, shapes={k: v.shape for k, v in feeds.items()})
    got = list(exe.run(feeds).values())
    row["cold_s"] = time.perf_counter() - start
    row["peak_mb"] = peak_mb()
    row["staged"] = type(exe).__name__ != "Executable"
    row |= verdict(got, feeds, model, weights)
    row["again"] = compiled_again(exe, [feeds])
    row |= timed(exe, feeds, model)


def extents_open(model: Path, weights: str, inputs: list[Feeds], row: Row) -> None:
    """Compile with open extents, and call with each of the inputs; keep the worst verdict.

    The last of the inputs is timed.
    """
    start = time.perf_counter()
    exe = ag.compile(model, threads=1)
    row["compiled"] = []
    for number, feeds in enumerate(inputs):
        before = len(exe.artifacts)
        got = list(exe.run(feeds).values())
        row.setdefault("cold_s", time.perf_counter() - start)
        row["compiled"].append(len(exe.artifacts) - before)
        found = verdict(got, feeds, model, weights)
        if number == 0 or _rank(found) > _rank(row):
            row |= found
    row["staged"] = type(exe).__name__ != "Executable"
    row["again"] = compiled_again(exe, inputs)
    row |= timed(exe, inputs[-1], model)


def compiled_again(exe: Any, inputs: list[Feeds]) -> int:
    """Call with inputs that were met; return how many graphs are compiled, which should be none."""
    with compilations() as lines:
        for feeds in inputs:
            exe.run(feeds)
    return len(lines)


class _Compilations(logging.Handler):
    """Keeps the lines that tell of compilations."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (line := record.getMessage()).startswith("compiled "):
            self.lines.append(line)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Yield the list to which the log adds a line for each graph that is compiled."""
    handler = _Compilations(logging.INFO)
    log = logging.getLogger("alpenglow")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def timed(exe: Any, feeds: Feeds, model: Path) -> Row:
    """Time calls of ours and of the peer with its optimisations, in turns, after one of each."""
    tuned = session(model, True)
    calls: list[Callable[[], Any]] = [lambda: exe.run(feeds), lambda: tuned.run(None, feeds)]
    for call in calls:
        call()
    rounds: list[list[float]] = []
    end = time.perf_counter() + SECONDS
    while len(rounds) < FEWEST or (len(rounds) < ROUNDS and time.perf_counter() < end):
        rounds.append([_seconds(call) for call in calls])
    ours, peers = (float(median) * 1e3 for median in np.median(rounds, 0))
    return {"ms": ours, "peer_ms": peers}


def verdict(got: list[Any], feeds: Feeds, model: Path, weights: str) -> Row:
    """Say whether results agree, and where they do not, whether the peer agrees with itself.

    A rounding that falls the other way is a whole step of a quantized tensor, which layers may
    amplify.  So the peer is also asked with its optimisations, and with its weights nudged.
    """
    wanted = session(model, False).run(None, feeds)
    ours = agreement(got, wanted, weights)
    if not ours["agrees"]:
        others = [session(model, True), session(nudged(model), False)]
        spread = [agreement(s.run(None, feeds), wanted, weights)["difference"] for s in others]
        ours["peer_differs"] = max(spread)
        ours["undetermined"] = max(spread) >= ours["difference"] / 2
    return ours


def agreement(got: list[Any], wanted: list[Any], weights: str) -> Row:
    """Compare lists of outputs: the largest difference, the same relative, whether that will do."""
    row: Row = {"agrees": True, "difference": 0.0, "relative": 0.0, "words": ""}
    pairs = list(zip(_leaves(got), _leaves(wanted), strict=True))
    for k, (ours, theirs) in enumerate(pairs):
        if (ours.shape, ours.dtype.kind) != (theirs.shape, theirs.dtype.kind):
            row["agrees"] = False
            row["difference"] = row["relative"] = float("inf")
            row["words"] = f"output {k} is {_type(ours)}, expected {_type(theirs)}"
            return row
        if theirs.dtype.kind in "fc":
            _compare_floats(ours, theirs, weights, row, k)
        else:
            _compare_exactly(ours, theirs, weights, row, k)
    return row


def nudged(model: Path) -> bytes:
    """Return the network with its float weights changed by about a unit in the last place."""
    onnx = import_module("onnx")
    changed = onnx.load(model)
    rng = np.random.default_rng(0)
    for tensor in changed.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            array = (array * (1 + NUDGE * rng.uniform(-1, 1, array.shape))).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return bytes(changed.SerializeToString())


def session(model: Path | bytes, optimised: bool) -> Any:
    """Return the network in ONNX Runtime, with one thread."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = model if isinstance(model, bytes) else str(model)
    return runtime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def unpacked(array: Array) -> Array:
    """Return strings as Python's, which is how a model takes them."""
    return array.astype(object) if array.dtype.kind == "U" else array


def peak_mb() -> float:
    """Return the most memory that this process had, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


def _compare_floats(ours: Array, theirs: Array, weights: str, row: Row, k: int) -> None:
    finite = np.isfinite(theirs)
    same = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
    if not same or not np.isfinite(ours[finite]).all():
        row["agrees"] = False
        row["difference"] = row["relative"] = float("inf")
        row["words"] = f"output {k}: NaN or inf in other places"
        return
    difference = np.abs(ours[finite].astype(np.float64) - theirs[finite]).max(initial=0)
    largest = float(np.abs(theirs[finite].astype(np.float64)).max(initial=0))
    if difference > row["difference"]:
        row["difference"] = float(difference)
    row["relative"] = max(row["relative"], float(difference / (largest or 1)))
    if difference <= max(FLOOR, RELATIVE[weights] * largest):
        return
    top = theirs.ndim and bool((ours.argmax(-1) == theirs.argmax(-1)).all())
    if weights == "int8" and theirs.shape[-1:] > (1,) and top:
        row["words"] = "same top-1"
        return
    row["agrees"] = False
    row["words"] = f"output {k}: {difference:.2e} of {largest:.3g}"


def _compare_exactly(ours: Array, theirs: Array, weights: str, row: Row, k: int) -> None:
    differing = float(np.mean(ours != theirs)) if theirs.size else 0.0
    row["difference"] = max(row["difference"], differing)
    if differing > (RELATIVE["int8"] if weights == "int8" else 0):
        row["agrees"] = False
        row["words"] = f"output {k}: {differing:.1%} of the elements differ"


def _leaves(found: Any) -> Iterator[Array]:
    """Yield the arrays of outputs that may be lists or maps; numbers in a map count as one each."""
    if isinstance(found, dict):
        yield np.asarray(list(found))
        yield np.asarray(list(found.values()))
    elif isinstance(found, list):
        for element in found:
            yield from _leaves(element)
    else:
        array = np.asarray(found)
        yield array.astype(str) if array.dtype.kind in "OUS" else array


def _rank(row: Row) -> tuple[bool, float]:
    return not row["agrees"], row["relative"]


def _type(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _inputs(file: Path) -> Feeds:
    with np.load(file) as arrays:
        return {k: unpacked(v) for k, v in arrays.items()}


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _told(error: Exception) -> str:
    """Return an exception in a line; with its place, where it is none that a user is told."""
    found = str(error).split()
    text = " ".join(word.rsplit("/", 1)[-1] if word[0] == "/" else word for word in found)
    words = f"{type(error).__name__}: {text}"
    if isinstance(error, AlpenglowError):
        return words
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{words} ({Path(frame.filename).name}:{frame.lineno})"


if __name__ == "__main__":
    main()
