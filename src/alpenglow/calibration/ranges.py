"""Profiling: running a compiled graph on samples and observing the range of each of its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.base.progress import Progress, silent
from alpenglow.calibration.samples import EMPTY, feeds_of
from alpenglow.driver.compile import compile as compile_model
from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.misuse import told_of
from alpenglow.ir.op import Control, Elementwise
from alpenglow.ir.region import deep, taken_in
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.quant.activations import ALIASES
from alpenglow.quant.layers import size, varying
from alpenglow.quant.naming import fingerprint, names
from alpenglow.quant.observe import BINS, Observer, check_bins
from alpenglow.quant.plan import check_graph
from alpenglow.quant.profile import Profile
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.session.session import Session

Runs = Executable | Session

MOST_NBYTES = 256 << 20
"""Values of more bytes than these are observed in several runs."""


def profile_ranges(
    graph: Graph,
    samples: Iterable[Any],
    *,
    bins: int = BINS,
    threads: int | None = None,
    progress: Progress = silent,
) -> Profile:
    """Run a graph on samples and return the ranges and histograms of its values.

    Args:
        graph: the graph; it is compiled for this processor.
        samples: any number of samples, of which one at a time is in memory.  A sample is a dict of
            arrays by input name, a tuple of arrays in input order, or the array of the only input.
            For a graph with variables they are the calls of one session.
        bins: the number of bins of each histogram.
        threads: the number of threads; None: one for each CPU that this process may use.
        progress: a function that is called after each sample.

    Returns:
        The profile, which `quantize` takes.

    Raises:
        FeedError: if there are no samples, or a sample holds NaN or infinities.
        UnsupportedError: if variables are parameters or grow.

    Example:
        >>> graph = ag.load("model.onnx")
        >>> ag.profile_ranges(graph, [np.ones((1, 8), np.float32)]).samples
        1
    """
    check_bins(bins)
    check_graph(graph)
    if graph.growing:
        raise UnsupportedError(
            f"graph {graph.name} cannot be profiled: its variables {', '.join(graph.growing)} grow",
            hint="profile and quantize the model first; compile(…, state=…) makes variables",
        )
    if samples is None or isinstance(samples, Mapping | str):
        raise FeedError(
            f"samples is {told_of(samples)}, expected samples one after the other",
            hint='[{"x": first}, {"x": second}]',
        )
    digest, graph = fingerprint(graph), taken_in(graph)
    called = names(graph)
    types = {n: v.type for n, v in graph.callers_inputs().items()}
    inputs = [n for n, t in types.items() if t.dtype == "f32"]
    parts = [observed(graph, part) for part in divided(seen(graph))]
    runs = [(_called(compile_model(g, threads=threads)), values) for g, values in parts]
    watches = [_watch(graph, n, threads) for n in graph.nodes if isinstance(n.op, Control)]
    inner = {v: Observer(bins) for w in watches for r in w.node.regions for v in _seen_inside(r)}
    observers = {called[graph.inputs[n]]: Observer(bins) for n in inputs}
    observers |= {called[v]: Observer(bins) for _, values in runs for v in values.values()}
    total = len(samples) if isinstance(samples, Sized) else 0
    count = 0
    for sample in samples:
        feeds = feeds_of(sample, types, count)
        for exe, values in runs:
            _see(exe, feeds, {n: observers[called[v]] for n, v in values.items()}, count)
        for watch in watches:
            watch.see(feeds, inner, count)
        for n in inputs:
            observers[called[graph.inputs[n]]].see(feeds[n])
        count += 1
        progress("profiling", count, max(total, count))
    if not count:
        raise FeedError(EMPTY)
    ranges = {n: o.range for n, o in observers.items()}
    # Of a branch that never ran, nothing is known.
    ranges |= {called[v]: o.range for v, o in inner.items() if o.range.total or o.range.infinite}
    return Profile(digest, count, ranges)


def seen(g: Graph) -> Iterator[Value]:
    """Yield the values of a graph that a profile tells of: computed ones, and variables at entry.

    These are all in f32 but those whose elements are another value's, and those that only an
    activation or the sum with a bias reads: they are computed together and never stored.
    """
    moving = varying(g)
    yield from (g.inputs[n] for n, v in g.initial.items() if v.type.dtype == "f32")
    for node in g.nodes:
        if not isinstance(node.op, ALIASES):
            for v in node.results:
                if v in moving and v.type.dtype == "f32" and not _passing(g, v, moving):
                    yield v


def _seen_inside(region: Graph) -> Iterator[Value]:
    """Yield what a profile tells of in a region, and in those inside of it."""
    for g in deep(region):
        yield from (v for v in g.inputs.values() if v.type.dtype == "f32")
        yield from seen(g)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A node of control flow, and `run`, which computes its operands as outputs called `names`."""

    node: Node
    run: Runs | None
    names: Mapping[Value, str]

    def see(self, feeds: Any, observers: Mapping[Value, Observer], number: int) -> None:
        """Interpret the regions on what the operands are, and observe all values of all turns."""
        outputs = {} if self.run is None else _outputs(self.run, feeds, number)
        arrays = [
            None if v is None else outputs[self.names[v]] if v.array is None else v.array
            for v in self.node.inputs
        ]

        def after(node: Node, ins: Sequence[Array | None], outs: Sequence[Array]) -> None:
            if node is self.node:
                return
            # An input of a region is seen once a turn, by the first node that reads it.
            given = {
                v: x for v, x in zip(node.inputs, ins, strict=True)
                if v is not None and v.producer is None and next(iter(v.users)) is node
            }  # fmt: skip
            for v, x in [*given.items(), *zip(node.results, outs, strict=True)]:
                if v in observers and x is not None:
                    observers[v].see(x)

        apply(self.node.op, arrays, self.node.regions, after=after)


def _watch(g: Graph, node: Node, threads: int | None) -> _Watch:
    values = list(dict.fromkeys(v for v in node.inputs if v is not None and v.array is None))
    copy, named = observed(g, values)
    run = _called(compile_model(copy, threads=threads)) if values else None
    return _Watch(node, run, {v: n for n, v in named.items()})


def _passing(g: Graph, v: Value, moving: set[Value]) -> bool:
    """Whether all that happens to a value is an activation or the sum with a constant."""
    if g.users(v) != 1 or not v.users:
        return False
    (user,) = v.users
    return isinstance(user.op, Elementwise | Relu) and sum(x in moving for x in user.inputs) == 1


def divided(values: Iterable[Value]) -> Iterator[list[Value]]:
    """Yield values in lists that do not take too much memory together, at least one list."""
    part: list[Value] = []
    nbytes = 0
    for v in values:
        more = 4 * size(v.type)
        if part and nbytes + more > MOST_NBYTES:
            yield part
            part, nbytes = [], 0
        part.append(v)
        nbytes += more
    yield part


def observed(g: Graph, values: Iterable[Value]) -> tuple[Graph, dict[str, Value]]:
    """Return a graph whose outputs are values of `g`, and these by the names of the outputs."""
    wanted = {f"seen:{i}": v for i, v in enumerate(values)}
    copy = g.copy()
    copy.metadata = replace(copy.metadata, structure=None)  # which names other outputs
    env = {
        old: new
        for a, b in zip(g.nodes, copy.nodes, strict=True)
        for old, new in zip(a.results, b.results, strict=True)
    }
    env |= zip(g.inputs.values(), copy.inputs.values(), strict=True)
    assigned = {name: copy.outputs[name] for name in copy.initial}
    copy.outputs = {**{name: env[v] for name, v in wanted.items()}, **assigned}
    copy.prune()
    return copy, wanted


def _called(exe: Executable) -> Runs:
    """Return a session of an Executable with variables, which samples share, or itself."""
    return exe.session() if exe.initial else exe


def _see(exe: Runs, feeds: Any, observers: dict[str, Observer], number: int) -> None:
    if not observers:
        return
    outputs = _outputs(exe, feeds, number)
    for name, observer in observers.items():
        observer.see(outputs[name])


def _outputs(exe: Runs, feeds: Any, number: int) -> Mapping[str, Any]:
    try:
        return exe.run(feeds)
    except FeedError as error:
        raise FeedError(f"sample {number}: {error.message}", hint=error.hint) from None
