"""Models at changing shapes: what a new shape costs, and later calls, beside ONNX Runtime's.

    taskset -c 0 python bench/dynamic.py [NAME ...]

Nothing is told of shapes when a model is compiled.  The first call compiles; then each further
shape is met for the first time, and called again a few times.  A call is timed on Alpenglow, then
on ONNX Runtime, one thread each, on the same arrays; each model in a process of its own, with an
empty cache.  The figures of a row are medians over the shapes; (…) is the slowest of the new ones.
Needs onnxruntime and the fetched models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import seeded_decoder

ROOT = Path(__file__).resolve().parent.parent
Array = NDArray[Any]
Arrays = dict[str, Array]
Calls = Generator[Arrays, Arrays, None]
"""Yields the feeds of one call after the other, and is sent what came out."""


@dataclass(frozen=True)
class Case:
    """A model, and the calls that it is measured on, each of another shape."""

    model: Callable[[Path], Path | onnx.ModelProto]
    calls: Callable[[np.random.Generator], Calls]
    again: int = 4
    static: tuple[int, ...] = ()
    """Which of the calls are also compared with what is compiled for their shape alone."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--models", type=Path, default=ROOT / ".models")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(CASES[given.names[0]], given.names[0], given.models)))
        return
    print("| model | shapes | compile s | new shape ms | again ms | ONNX Runtime: new | again "
          "| ratio (10-90 %) | static ratio | compilations | error |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in given.names or CASES:
        row = in_process(name, given.models)
        print(
            f"| {name} | {row['shapes']:.0f} | {row['compile']:.2f} "
            f"| {row['new']:.2f} ({row['worst']:.1f}) | {row['again']:.3f} "
            f"| {row['peer_new']:.2f} ({row['peer_worst']:.1f}) | {row['peer_again']:.3f} "
            f"| {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f}) | {row['static']:.2f} "
            f"| {row['compilations']:.0f} | {row['error']:.1e} |",
            flush=True,
        )


def in_process(name: str, models: Path) -> dict[str, float]:
    """Measure one model in a new process, with an empty kernel cache."""
    command = [sys.executable, __file__, "--one", "--models", str(models), name]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ALPENGLOW_CACHE": cache}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(case: Case, name: str, models: Path) -> dict[str, float]:
    """Return the figures of one model."""
    model = case.model(models / name)
    start = time.perf_counter()
    exe = ag.compile(model, threads=1)
    loading = time.perf_counter() - start
    session = runtime(model)
    results = [output.name for output in session.get_outputs()]
    ours: list[Timed] = []
    theirs: list[Timed] = []
    errors: list[float] = []
    statics: list[float] = []
    calls = case.calls(np.random.default_rng(0))
    feeds = next(calls)
    while True:
        mine = timed(partial(exe.run, feeds), case.again)
        peer = timed(partial(session.run, None, feeds), case.again)
        errors += [relative_error(mine.result[n], w)
                   for n, w in zip(results, peer.result, strict=True)]  # fmt: skip
        if len(ours) in case.static:
            fixed = ag.compile(model, threads=1, shapes={n: x.shape for n, x in feeds.items()})
            fixed.run(feeds)
            statics.append(timed(partial(fixed.run, feeds), case.again).again / mine.again)
        ours.append(mine)
        theirs.append(peer)
        try:
            feeds = calls.send(mine.result)
        except StopIteration:
            break
    ratios = [p.again / m.again for m, p in zip(ours, theirs, strict=True)]
    return {
        "shapes": len(ours),
        "compile": loading + ours[0].first,
        "new": float(np.median([t.first for t in ours[1:]])) * 1e3,
        "worst": max(t.first for t in ours[1:]) * 1e3,
        "again": float(np.median([t.again for t in ours])) * 1e3,
        "peer_new": float(np.median([t.first for t in theirs[1:]])) * 1e3,
        "peer_worst": max(t.first for t in theirs[1:]) * 1e3,
        "peer_again": float(np.median([t.again for t in theirs])) * 1e3,
        "ratio": float(np.median(ratios)),
        "low": float(np.percentile(ratios, 10)),
        "high": float(np.percentile(ratios, 90)),
        "static": float(np.median(statics)) if statics else float("nan"),
        "compilations": len(exe.artifacts),
        "error": max(errors),
    }


@dataclass(frozen=True)
class Timed:
    """Seconds of a first call and of those after it, and what the first one returned."""

    first: float
    again: float
    result: Any


def timed(call: Callable[[], Any], again: int) -> Timed:
    """Time a call, and the median of so many more."""
    times = []
    for _ in range(1 + again):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return Timed(times[0], float(np.median(times[1:])), result)


def runtime(model: Path | onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return ONNX Runtime's session of a model, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def relative_error(got: Array, wanted: Array) -> float:
    """Return the largest difference, relative to the largest wanted element."""
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    return float(difference.max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 1e-12))


# ── the models and their calls ──


def fetched(folder: Path) -> Path:
    """Return the ONNX file of a fetched model."""
    return folder / "model.onnx"


def sentences(rng: np.random.Generator) -> Calls:
    """Yield one sentence of each of 64 lengths, in no order."""
    for length in rng.permutation(np.arange(3, 195, 3)).tolist():
        tokens = rng.integers(1000, 20000, (1, length))
        yield {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }


def tokens(rng: np.random.Generator) -> Calls:
    """Yield the steps of a decoder over 200 tokens: what was said before is said to it again."""
    past = seeded_decoder.Size().past()
    made = yield {"token": np.array([[7]]), **past}
    for _ in range(199):
        past = {n: made[n.replace("past", "present")] for n in past}
        made = yield {"token": made["logits"].argmax(-1), **past}


def growing(_: Path) -> onnx.ModelProto:
    """Return a Loop that appends a row, made from the last one, to what it carries."""
    # With larger weights the rows would be chaotic, and no two runtimes would agree.
    rng = np.random.default_rng(0)
    weights = 0.1 * rng.standard_normal((32, 32), np.float32)
    bias = rng.standard_normal((1, 32), np.float32)
    node = helper.make_node
    body = helper.make_graph(
        [
            node("Slice", ["x", "last", "end", "axis"], ["row"]),
            node("MatMul", ["row", "w"], ["product"]),
            node("Add", ["product", "b"], ["sum"]),
            node("Tanh", ["sum"], ["new"]),
            node("Concat", ["x", "new"], ["longer"], axis=0),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("longer", TensorProto.FLOAT, ["n1", 32]),
        ],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(bias, "b"),
            *(numpy_helper.from_array(np.array([v]), n)
              for n, v in (("last", -1), ("end", 1 << 40), ("axis", 0))),
        ],
    )  # fmt: skip
    graph = helper.make_graph(
        [node("Loop", ["trips", "", "start"], ["grown"], body=body)],
        "growing",
        [
            helper.make_tensor_value_info("trips", TensorProto.INT64, []),
            helper.make_tensor_value_info("start", TensorProto.FLOAT, ["rows", 32]),
        ],
        [helper.make_tensor_value_info("grown", TensorProto.FLOAT, ["n", 32])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def starts(rng: np.random.Generator) -> Calls:
    """Yield what a loop of 500 iterations begins with."""
    for rows in (2, 3, 7, 20, 64, 100):
        start = rng.standard_normal((rows, 32)).astype(np.float32)
        yield {"trips": np.array(500), "start": start}


SIZES = ((96, 128), (120, 160), (128, 128), (97, 131), (144, 112),
         (160, 200), (64, 64), (200, 150), (180, 180), (75, 240))  # fmt: skip


def styled(rng: np.random.Generator) -> Calls:
    """Yield pictures of ten sizes for a style network."""
    weights = np.zeros(26, np.float32)
    weights[19] = 1
    for size in SIZES:
        picture = rng.random((1, 3, *size), np.float32)
        yield {"image": picture, "style_weights": weights}


def pictures(rng: np.random.Generator) -> Calls:
    """Yield pictures of ten sizes."""
    for size in SIZES:
        yield {"x": rng.standard_normal((1, 3, *size)).astype(np.float32)}


def sounds(
    sizes: tuple[tuple[int, int, int], ...], rate: bool = True
) -> Callable[[np.random.Generator], Calls]:
    """Return calls with batches of pieces of sound: (how many, samples each, rate)."""

    def calls(rng: np.random.Generator) -> Calls:
        for count, samples, hertz in sizes:
            feeds = {
                "input": np.float32(0.1) * rng.standard_normal((count, samples), np.float32),
                "state": np.float32(0.1) * rng.standard_normal((2, count, 128), np.float32),
            }
            yield feeds | {"sr": np.array(hertz)} if rate else feeds

    return calls


def series(rng: np.random.Generator) -> Calls:
    """Yield successive pieces of one sound, more or fewer of them."""
    for count in (5, 1, 2, 3, 4, 6, 8, 12, 20, 31):
        pieces = np.float32(0.1) * rng.standard_normal((count, 576), np.float32)
        h, c = np.float32(0.1) * rng.standard_normal((2, 1, 1, 128), np.float32)
        yield {"input": pieces, "h": h, "c": c}


WIDE = ((4, 576, 16000), (1, 576, 16000), (2, 576, 16000), (3, 576, 16000), (5, 576, 16000),
        (8, 576, 16000), (12, 576, 16000), (20, 576, 16000))  # fmt: skip
BOTH = (*WIDE, (1, 288, 8000), (2, 288, 8000), (6, 288, 8000))
LONG = (*BOTH, (1, 1088, 16000), (1, 832, 16000), (2, 1600, 16000))

CASES = {
    "minilm_l6_int8w": Case(fetched, sentences, static=(3, 13, 23, 33, 43, 53)),
    "seeded_decoder": Case(lambda _: seeded_decoder.decoder(seeded_decoder.Size()), tokens, 2),
    "growing_loop": Case(growing, starts),
    "style26": Case(fetched, styled, static=(2, 5)),
    "mtcnn_pnet": Case(fetched, pictures, static=(2, 5, 7)),
    "silero_vad": Case(fetched, sounds(BOTH), 20),
    "silero_vad_16k_op15": Case(fetched, sounds(WIDE), 20),
    "silero_vad_16k_sequence": Case(fetched, series, 20),
    "silero_vad_half": Case(fetched, sounds(WIDE, rate=False), 20),
    "silero_vad_op18_ifless": Case(fetched, sounds(LONG), 20),
}


if __name__ == "__main__":
    main()
