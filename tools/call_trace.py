"""Count the functions and files that run when a graph is compiled or a model is loaded.

    python tools/call_trace.py           # a line for each trace
    python tools/call_trace.py --files   # and the files of each, most lines first

compile: `ag.compile` of the graph relu(x @ w).  The process has compiled another graph before, so
  that imports do not count; no kernel comes from the cache on disk.
load: `ag.load` of a StableHLO program with one convolution.
convert: the part of `load` from the importer to the operator, in `frontends` alone.

A function is a `def`; lambdas and comprehensions are parts of it.  Lines are those of the functions
that ran.  Calls include resumptions of generators.  An entry is a call from one file into another.
"""

import argparse
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import numpy as np

import alpenglow as ag
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import MatMul

PACKAGE = Path(ag.__file__).parent
PROGRAM = b"""func.func @main(%x: tensor<1x8x8x3xf32>, %w: tensor<3x3x3x16xf32>) -> tensor<1x8x8x16xf32> {
  %y = stablehlo.convolution(%x, %w)
    dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x3xf32>, tensor<3x3x3x16xf32>) -> tensor<1x8x8x16xf32>
  return %y : tensor<1x8x8x16xf32>
}"""  # noqa: E501


class Call(NamedTuple):
    """A call of code of `file` by code of `caller`, both paths below the package."""

    file: str
    code: CodeType
    caller: str
    depth: int


def trace(run: Callable[[], object]) -> list[Call]:
    """Return the calls in the package while `run` runs, also those in threads that it starts."""
    prefix, calls, local = f"{PACKAGE}{os.sep}", list[Call](), threading.local()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(prefix):
            return
        running = local.__dict__.setdefault("files", [""])  # of this thread, the innermost last
        if event == "return":
            running.pop()
            return
        file = code.co_filename.removeprefix(prefix)
        calls.append(Call(file, code, running[-1], len(running)))
        running.append(file)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def compile_trace() -> list[Call]:
    """Return the calls of `ag.compile` of relu(x @ w), after another product has been compiled."""
    other, graph = product(4, 4, 4), product(32, 64, 128)
    ag.compile(other)
    return trace(lambda: ag.compile(graph))


def product(rows: int, terms: int, columns: int) -> ag.Graph:
    """Return the graph relu(x @ w), where w is a constant."""
    graph = ag.Graph("product")
    x, w = graph.input("x", f"f32[{rows},{terms}]"), np.ones((terms, columns), np.float32)
    graph.output("y", graph(Relu(), graph(MatMul(), x, graph.constant(w))))
    return graph


def load_trace() -> list[Call]:
    """Return the calls of `ag.load` of a StableHLO program with one convolution."""
    ag.load(PROGRAM)
    return trace(lambda: ag.load(PROGRAM))


def convert_trace(loaded: Sequence[Call]) -> list[Call]:
    """Return the calls of `loaded` in `frontends` until the importer has converted one step."""
    rest = dropwhile(lambda call: call.code.co_name != "_convert", loaded)
    first = next(rest)
    inside = [first, *takewhile(lambda call: call.depth > first.depth, rest)]
    return [c for c in inside if {c.file[:9], c.caller[:9]} == {"frontends"}]


def files_of(calls: Sequence[Call]) -> Mapping[str, tuple[int, int]]:
    """Return for each file the numbers of lines and of functions that ran, most lines first."""
    ran: dict[str, set[CodeType]] = defaultdict(set)
    for call in calls:
        ran[call.file].add(call.code)
    counts = {file: _counts(code for code in ran[file] if code.co_name[0] != "<") for file in ran}
    return dict(sorted(counts.items(), key=lambda item: -item[1][0]))


def _counts(functions: Iterable[CodeType]) -> tuple[int, int]:
    spans = [
        range(code.co_firstlineno, max(end or 0 for _, end, *_ in code.co_positions()) + 1)
        for code in functions
    ]
    return len({line for span in spans for line in span}), len(spans)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--files", action="store_true", help="list the files of each trace")
    listing = parser.parse_args().files
    os.environ["ALPENGLOW_CACHE"] = "off"
    loaded = load_trace()
    traces = {"compile": compile_trace(), "load": loaded, "convert": convert_trace(loaded)}
    print("trace    functions  files   lines    calls  entries")
    for name, calls in traces.items():
        files = files_of(calls)
        lines, ran = map(sum, zip(*files.values(), strict=True))
        entries = sum(call.file != call.caller for call in calls)
        print(f"{name:7}  {ran:9,}  {len(files):5,}  {lines:6,}  {len(calls):7,}  {entries:7,}")
        for file, (size, count) in files.items() if listing else ():
            print(f"{'':7}  {count:9,}  {'':5}  {size:6,}  {file}")


if __name__ == "__main__":
    main()
