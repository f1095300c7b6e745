"""Whether a bundle is as fast as the model compiled to run here: python bench/bundles.py MODEL …

All run in one process on one processor, a call of each in turn, so that what disturbs one disturbs
all.  A call is compared with the call of the compiled model in the same turn; the compiled model
takes part twice, and what the second differs from the first is noise.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.base.memory import aligned_bytes
from alpenglow.bundles import Bundle
from alpenglow.machines.cpu.jit import Code

Call = Callable[[], object]


def main() -> None:
    """Print, for each model, the median ratio of every form to the compiled model."""
    parser = argparse.ArgumentParser(description="Compare bundles with compiled models.")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--shapes", action="append", default=[], metavar="NAME=1x3x224x224")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--cpu", type=int, default=0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu})
    shapes = {n: tuple(map(int, s.split("x"))) for n, _, s in (t.partition("=")
              for t in args.shapes)}  # fmt: skip
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{model.name} on {args.target}, {args.calls} calls")
            report(forms(model, args.target, shapes or None, Path(folder)), args.calls)


def report(calls: Mapping[str, Call], count: int) -> None:
    """Run the forms of a model in turns and print what they take."""
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-3, count):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begin = time.perf_counter()
            calls[name]()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - begin)
    first = np.array(seconds[names[0]])
    for name in names:
        times = np.array(seconds[name])
        print(f"  {name:16} {np.median(times) * 1e3:9.3f} ms   {np.median(times / first):.3f}")


def forms(
    model: Path, target: str, shapes: Mapping[str, tuple[int, ...]] | None, folder: Path
) -> dict[str, Call]:
    """Return a model's forms, each as a call on the same input: compiled, and in bundles."""
    compiled = ag.compile(model, target, 1, shapes)
    rng = np.random.default_rng(0)
    feeds = {n: rng.random(t.extents).astype(t.numpy) for n, t in compiled.inputs.items()}

    def made(form: str, freestanding: bool = False) -> Bundle:
        return ag.bundle(
            model, folder / f"{form}{freestanding:d}", target=target, entry="net", shapes=shapes,
            format=form, freestanding=freestanding,
        )  # fmt: skip

    found: dict[str, Call] = {name: lambda: compiled.run(feeds) for name in ("compiled", "again")}
    for name, one in (("object", made("object")), ("freestanding", made("object", True))):
        found[name] = call(one, feeds, Code.install([(one.folder / "net.o").read_bytes()], ["net"]))
    shared = made("shared")
    found["shared"] = call(shared, feeds, ctypes.CDLL(str(shared.folder / "libnet.so")))
    return found


def call(made: Bundle, feeds: Mapping[str, Any], code: Code | ctypes.CDLL) -> Call:
    """Return a call of a bundle's entry point on memory that holds its inputs."""
    (routine,) = made.routines
    weights = (made.folder / "net.weights.bin").read_bytes()
    regions = [aligned_bytes(max(n, 1)) for n in
               (len(weights), routine.mutable_nbytes, routine.scratch_nbytes)]  # fmt: skip
    regions[0][: len(weights)] = np.frombuffer(weights, np.uint8)
    for s in routine.inputs:
        place = regions[1][s.offset : s.offset + s.type.nbytes]
        place[:] = np.ascontiguousarray(feeds[s.name]).reshape(-1).view(np.uint8)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)
    function = kind(code.address("net")) if isinstance(code, Code) else kind(("net", code))
    addresses = [r.ctypes.data for r in regions]

    def run(kept: object = (code, regions)) -> None:
        assert function(*addresses) == 0

    return run


if __name__ == "__main__":
    main()
