"""Tools that walk over graphs, on graphs with loops and branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.compiler import Options
from alpenglow.debug.bisect import bisect
from alpenglow.debug.exact import exact, widened
from alpenglow.evaluate import evaluate
from alpenglow.ir.constant_inputs import fix
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.region import deep
from alpenglow.ir.target import Target
from alpenglow.ir.truncate import truncate
from alpenglow.measure.flops import flops
from alpenglow.measure.sources import sources
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.report.check import check, planned
from alpenglow.train.blame import first_infinite
from region_cases import choosing, countdown, feeds, nested, rnn

CPU = Target.parse("cpu")
GRAPHS = [rnn, lambda: rnn(inside=True), countdown, choosing]

graphs = pytest.mark.parametrize("make", GRAPHS, ids=["rnn", "own weight", "while", "if in scan"])
Make = Callable[[], Graph]


def test_nodes_of_regions_are_told_in_each_turn() -> None:
    told: Counter[str] = Counter()

    def after(node: Node, operands: object, results: object) -> None:
        told[node.op.name] += 1

    evaluate(choosing(), feeds(choosing()), after)

    assert told == {"sub": 6, "less": 6, "if": 6, "add": 6, "neg": 3, "tanh": 3, "scan": 1}


@graphs
def test_values_in_regions_are_computed_in_f64(make: Make) -> None:
    g = make()
    wide = widened(g)

    values = [v for part in deep(wide) for n in part.nodes for v in n.results]
    assert "f32" not in {v.type.dtype for v in values}
    for name, y in evaluate(g, feeds(g)).items():
        np.testing.assert_allclose(exact(g, feeds(g))[name], y, 1e-5, 1e-5)


@graphs
def test_bisection_goes_through_all_passes(make: Make) -> None:
    g = make()

    assert bisect(g, CPU, Options(), feeds(g), 1e-5) is None
    assert bisect(g, CPU, Options(), feeds(g), -1.0) is not None


@graphs
def test_jumps_are_no_operators_that_lack_a_kernel(make: Make) -> None:
    rows = check(make(), CPU)

    assert {r.how for r in rows} == {"compiled"}
    assert "jump" not in {r.operator for r in rows}


def test_values_in_a_loop_are_no_ends_of_a_graph() -> None:
    with pytest.raises(OptionError, match="product is a value inside a loop or branch"):
        truncate(rnn(), "product")


def test_a_graph_ends_with_the_result_of_a_loop() -> None:
    g = rnn()
    g.outputs["h"].name = "last"

    assert list(evaluate(truncate(g, "last"), feeds(g))) == ["last"]


@graphs
def test_inputs_of_a_loop_may_be_constants(make: Make) -> None:
    g = make()
    given = feeds(g)
    for name in given:
        rest = {n: x for n, x in given.items() if n != name}
        actual = ag.compile(fix(g, {name: given[name]})).run(rest)
        for output, y in evaluate(g, given).items():
            np.testing.assert_allclose(actual[output], y, 1e-5, 1e-5)


def test_the_work_of_a_loop_is_that_of_its_turns() -> None:
    assert [flops(rnn(n)) for n in (1, 7)] == [2 * 2 * 8 * 8, 7 * 2 * 2 * 8 * 8]
    assert flops(countdown()) == 2 * 2 * 4 * 4
    assert flops(nested()) == 0


@graphs
def test_a_layer_of_a_loop_keeps_its_precision_by_name(make: Make) -> None:
    g = make()
    names = [v.name for part in deep(g) for n in part.nodes for v in n.results if v.name]
    kept = ag.compile(g, precision="bf16", keep=tuple(names)).run(feeds(g))

    for name, y in ag.compile(g).run(feeds(g)).items():
        np.testing.assert_array_equal(kept[name], y)


@graphs
def test_instructions_of_a_loop_are_known_to_be_its(make: Make) -> None:
    g = make()
    for i, v in enumerate(g.outputs.values()):
        v.name = f"result{i}"
    instrs = list(planned(g, CPU).instrs())
    origins = dict(zip(instrs, sources(instrs, g), strict=True))

    assert {n for i, names in origins.items() if not isinstance(i.op, Jump) for n in names} >= {
        g.outputs[n].producer.results[0].name for n in g.outputs
    }
    assert all(origins[i] for i in instrs if "result0" in i.names)
    assert sum("result0" in i.names for i in instrs) > 5


def test_the_first_node_that_makes_an_infinity_is_named_within_a_loop() -> None:
    g = rnn()
    (body,) = next(iter(g.nodes)).regions
    new = body.outputs["h1"]
    body.outputs["softmax"] = body(Log(), body(Mul(), new, new), name="logarithm")
    given = feeds(g) | {"h0": np.zeros((2, 8), np.float32), "xs": np.zeros((5, 2, 8), np.float32)}

    assert first_infinite(g, given) == ", first in log 'logarithm'"
