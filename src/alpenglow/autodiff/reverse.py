"""Gradients of one value with respect to others, as nodes of the same graph.

The nodes between are gone through backwards.  Each turns the gradients of its results into those
of its operands: by the `gradient` of its operator; by its formula, if it is elementwise; by what
it is lowered to, if it is composite; by another loop or branch, if it is one (`control`).  Only
floats and complex numbers have gradients, so what is computed by way of integers or booleans
(positions, comparisons) counts as constant.  The gradient by a complex number has for parts the
gradients by its parts.

The new nodes are ordinary ones, so gradients of gradients need nothing more.  They compute anew
what they need of the forward nodes; `cse` finds what is there twice.

A value that `where` did not choose gets a gradient of 0, which is lost where a derivative is
infinite: as in other systems, the gradient of where(x > 0, sqrt(x), 0) at 0 is NaN.  Only a branch
that is not taken is left out as a whole (`branches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from alpenglow.autodiff.beside import RULES
from alpenglow.autodiff.branches import guarded, guards_left
from alpenglow.autodiff.control import pull_back as through_control
from alpenglow.autodiff.formula import pull_back
from alpenglow.base.errors import OptionError, TypeRuleError, UnsupportedError
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Control, Elementwise
from alpenglow.ir.types import COMPLEX, FLOATS
from alpenglow.ops.elementwise.algebra import plus
from alpenglow.ops.reduction.reduction import filled

Grads = list[Value | None]

SMOOTH = FLOATS | COMPLEX
"""Element types of what has a gradient."""

WITHOUT_GRADIENT = (
    "ag.custom_gradient(g, y, xs, backward), which states the gradient of y, or "
    "train.stop_gradient(g, y), which takes y as a constant"
)
"""The hint of a refusal that has none of its own."""


def gradients(
    g: Graph, y: Value, xs: Sequence[Value], fixed: Sequence[Value] = (), dy: Value | None = None
) -> list[Value]:
    """Append nodes that compute the gradient of `y` with respect to each of `xs`.

    The gradient is taken of the sum of the elements of `y`, weighted by `dy` if it is given.

    Args:
        g: the graph.
        y: a value of floats.
        xs: the values to differentiate with respect to.  They count as independent of each other:
            gradients stop at them.
        fixed: further values at which gradients stop.
        dy: the gradient of `y`; None: ones.

    Returns:
        A gradient for each of `xs`, of its type.

    Raises:
        UnsupportedError: if an operator between `xs` and `y` has no gradient.
        TypeRuleError: if a value does not hold floats.

    Example:
        >>> g = ag.Graph("square")
        >>> x = g.input("x", "f32[3]")
        >>> y = ag.Expression(g, x) * ag.Expression(g, x)
        >>> [dx] = ag.gradients(g, y.value, [x])
        >>> _ = g.output("dx", dx)
        >>> ag.compile(g)(np.array([1, 2, 3], np.float32))
        array([2., 4., 6.], dtype=float32)
    """
    for v in (y, *xs):
        if not isinstance(v, Value):
            raise OptionError(f"gradients: {v!r} is not a Value", hint="graph.outputs['y']")
        if v.type.dtype not in (FLOATS if v is y else SMOOTH):
            raise TypeRuleError(
                f"gradient: {v} has {v.type.dtype} elements, expected floats",
                hint="gradients of a loss that is computed from float outputs"
                if v is y
                else "Cast to f32 and gradients with respect to its result",
            )
    before = len(g.nodes)
    seed = filled(g, 1, y) if dy is None else dy
    try:
        dxs = _sweep(g, leading_to(g, [y], [*xs, *fixed]), [(y, seed)], xs, fixed)
    except UnsupportedError as error:
        error.hint = error.hint or WITHOUT_GRADIENT
        raise
    grads = [
        filled(g, 0, x) if dx is None else dx for x, dx in zip(xs, dxs, strict=True)
    ]  # fmt: skip
    _discard(g, before, grads)
    g.sort()
    return grads


def leading_to(g: Graph, ys: Sequence[Value], leaves: Sequence[Value]) -> list[Node]:
    """Return the nodes that ys are computed by, in order, none of which makes only leaves."""
    stop, ancestors = set(leaves), set[Node]()
    waiting = [v for v in ys if v not in stop]
    while waiting:
        node = waiting.pop().producer
        if node is not None and node not in ancestors:
            ancestors.add(node)
            waiting += [v for v in node.inputs if v is not None and v not in stop]
    return [n for n in g.nodes if n in ancestors]


def substituted(g: Graph, ys: Sequence[Value], new: Mapping[Value, Value]) -> list[Value]:
    """Append what computes ys with other values in place of some, and return it.

    Nodes before these are not looked at, even if a value stays as it is.
    """
    env = dict(new)
    for node in leading_to(g, ys, list(new)):
        inputs = [None if v is None else env.get(v, v) for v in node.inputs]
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            continue
        copied = g.add(node.op, inputs, node.regions)
        for old, copy in zip(node.results, copied.results, strict=True):
            env.setdefault(old, copy)
    return [env.get(y, y) for y in ys]


def _sweep(
    g: Graph,
    nodes: Sequence[Node],
    seeds: Sequence[tuple[Value, Value | None]],
    xs: Sequence[Value | None],
    fixed: Sequence[Value] = (),
) -> Grads:
    """Return the gradients of xs, None for 0, given the gradients of results of `nodes`."""
    leaves = {*xs, *fixed}
    moving = {x for x in xs if x is not None and x.type.dtype in SMOOTH}
    for node in nodes:
        if any(v in moving for v in node.inputs):
            moving |= {v for v in node.results if v.type.dtype in SMOOTH and v not in leaves}
    left = guards_left(nodes, [y for y, _ in seeds], xs, moving)
    grads: dict[Value, Value] = {}
    for y, dy in seeds:
        if dy is not None and y in moving:
            grads[y] = plus(g, grads[y], dy) if y in grads else dy
    for node in reversed(nodes):
        wanted = [v in moving for v in node.inputs]
        dys = [None if v in leaves else grads.get(v) for v in node.results]
        if not any(wanted) or all(dy is None for dy in dys):
            continue
        for v, dv in zip(node.inputs, _pull(g, node, dys, wanted), strict=False):
            if v is not None and dv is not None and v in moving:
                if isinstance(dv, UnsupportedError):
                    raise dv
                assert dv.type == v.type, f"the gradient of {v} by {node.op} is {dv}"
                dv = guarded(g, dv, left.get((node, v), ()))
                grads[v] = plus(g, grads[v], dv) if v in grads else dv
    return [None if x is None else grads.get(x) for x in xs]


def _pull(
    g: Graph, node: Node, dys: Grads, wanted: Sequence[bool]
) -> Sequence[Value | UnsupportedError | None]:
    """Return the gradients of the operands of a node, from the gradients of its results.

    An operand without a gradient gets an error, which is raised only if its gradient is needed.
    """
    op, xs = node.op, node.inputs
    rule = op.gradient or (partial(RULES[type(op)], op) if type(op) in RULES else None)
    if rule is not None:
        try:
            regions = {"regions": node.regions} if node.regions else {}
            dxs = rule(g, dys[0] if len(dys) == 1 else tuple(dys), *xs, **regions)
        except TypeRuleError as error:
            if not any(v is not None and v.type.dtype in COMPLEX for v in (*xs, *node.results)):
                raise
            raise UnsupportedError(
                f"gradient: {op.name} of complex numbers is not supported ({error})"
            ) from error
        return [dxs] if dxs is None or isinstance(dxs, Value) else list(dxs)
    match op:
        case Elementwise():
            (dy,) = dys
            assert dy is not None, "the only result has a gradient"
            return pull_back(g, op, dy, [v for v in xs if v is not None], wanted)
        case Composite():
            before = len(g.nodes)
            body = op.lower(g, *xs)
            results = [body] if isinstance(body, Value) else list(body)
            seeds = list(zip(results, dys, strict=True))
            lowered = list(g.nodes)[before:]
            dxs = _sweep(g, lowered, seeds, xs)
            if any(isinstance(n.op, Control) for n in lowered):
                # The loop that goes back asks for more results of the same loop, not of another.
                for old, new in zip(node.results, results, strict=True):
                    g.replace(old, new)
            # The gradient of a value that is several operands is a sum over all of them.
            return [
                None if x in xs[:i] else dx for i, (x, dx) in enumerate(zip(xs, dxs, strict=True))
            ]
        case Control():
            return through_control(_sweep, g, node, dys, wanted)
    raise UnsupportedError(
        f"gradient: operator {op.name} is not supported", node=node.results[0].name
    )


def _discard(g: Graph, before: int, kept: Sequence[Value]) -> None:
    """Remove the nodes after the first `before` that nothing reads."""
    read = {*kept, *g.outputs.values()}
    for node in reversed(list(g.nodes)[before:]):
        if not node.users and not read.intersection(node.results):
            g.remove(node)
