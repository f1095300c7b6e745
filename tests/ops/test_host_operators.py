"""Operators on values that no graph holds: sequences, optionals, strings, maps and images.

The node tests of ONNX go through the hosted forms; other values are written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from alpenglow.base.errors import TypeRuleError
from alpenglow.base.extensions import bring_extras
from alpenglow.extras.ml import labels
from alpenglow.extras.sequences import sequences
from alpenglow.extras.strings import strings
from alpenglow.frontends.onnx.hosted import makes_host_value, supported_on_host
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Host, Op
from alpenglow.ir.text import literal, parse_literal
from alpenglow.ops.host.demand import text
from alpenglow.ops.host.sequence import SequenceAt
from node_cases import models
from onnx_host import LETTERS, ML, assert_equal, hosted_form, of, results, site

Array = NDArray[Any]

bring_extras("onnx")

HOSTS = [
    c for c in Op.registry.values() if issubclass(c, Host) and c.__module__.startswith("alpenglow.")
]

# ── all operators ──


@pytest.mark.parametrize("cls", HOSTS, ids=lambda c: c.name)
def test_every_example_runs_and_leaves_its_operands_as_they_were(cls: type[Host]) -> None:
    assert list(cls.examples())
    for op, *values in cls.examples():
        before = repr(values)
        made = op.reference(*values)
        again = op.reference(*values)

        assert repr(values) == before
        assert repr(made) == repr(again)


@pytest.mark.parametrize("cls", HOSTS, ids=lambda c: c.name)
def test_what_is_prepared_serves_every_example_with_such_attributes(cls: type[Host]) -> None:
    prepared = {repr(op): op.prepared() for op, *_ in cls.examples()}
    for _ in range(2):
        for op, *values in cls.examples():
            assert repr(prepared[repr(op)](*values)) == repr(op.reference(*values))


def forms(values: Any) -> list[Any]:
    listed = values if isinstance(values, tuple) else (values,)
    return [(v.dtype, v.shape) if isinstance(v, np.ndarray) else type(v) for v in listed]


@pytest.mark.parametrize("cls", [c for c in HOSTS if c.forms_follow], ids=lambda c: c.name)
def test_forms_that_follow_do_not_depend_on_elements(cls: type[Host]) -> None:
    for op, *values in cls.examples():
        others = [
            np.full(v.shape, v.flat[0], v.dtype) if isinstance(v, np.ndarray) and v.size else v
            for v in values
        ]

        assert forms(op.reference(*others)) == forms(op.reference(*values))


@pytest.mark.parametrize("cls", HOSTS, ids=lambda c: c.name)
def test_attributes_read_back_from_text(cls: type[Host]) -> None:
    for op, *_ in cls.examples():
        given = {k: parse_literal(literal(v)) for k, v in op.attributes()}

        assert repr(cls(**given)) == repr(op)


@pytest.mark.parametrize("cls", HOSTS, ids=lambda c: c.name)
def test_the_docstring_names_the_operator_of_onnx(cls: type[Host]) -> None:
    assert "ONNX " in (cls.__doc__ or "")


def test_no_graph_takes_an_operator_of_the_host() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")

    with pytest.raises(TypeRuleError, match="keep in a graph is not supported"):
        g(sequences.Keep(), x)


# ── ONNX's node tests ──

NODES = {
    "ImageDecoder", "OptionalGetElement", "OptionalHasElement", "RegexFullMatch", "SequenceInsert",
    "SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    "LabelEncoder",
}  # fmt: skip
ON_STRINGS = {"Identity"}
IMAGES = 2.0
"""By how much pixels of images that are compressed with losses may differ."""


def cases() -> Iterator[Any]:
    for case in models():
        if len(case.model.graph.node) != 1 or case.name.endswith("_expanded"):
            continue
        op_type = case.model.graph.node[0].op_type
        plain = all(
            i.type.WhichOneof("value") == "tensor_type"
            and i.type.tensor_type.elem_type != TensorProto.STRING
            for i in case.model.graph.input
        )
        if op_type in NODES or (op_type in ON_STRINGS and not plain):
            yield pytest.param(case, id=case.name)


def value(proto: Any, kind: str) -> Any:
    """Return a value of a data set."""
    if isinstance(proto, np.ndarray):
        return proto.astype(object) if proto.dtype.kind in "US" else proto
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    if isinstance(proto, onnx.OptionalProto):
        return numpy_helper.to_optional(proto)
    if isinstance(proto, onnx.TensorProto):
        return value(numpy_helper.to_array(proto), kind)
    return proto if kind != "tensor_type" or proto is None else np.asarray(proto)


@pytest.mark.parametrize("case", list(cases()))
def test_node_of_onnx(case: Any) -> None:
    graph = case.model.graph
    (node,) = graph.node
    opsets = {o.domain: o.version for o in case.model.opset_import}
    op = hosted_form(node, opsets[node.domain])
    kinds = {i.name: i.type.WhichOneof("value") for i in (*graph.input, *graph.output)}
    for given, wanted in case.data_sets:
        fed = iter(given)
        operands = [value(next(fed), kinds[n]) if n else None for n in node.input]
        expected = [value(w, kinds[n]) for n, w in zip(node.output, wanted, strict=True)]
        actual = results(op.reference(*operands))

        assert len(actual) == len(expected)
        for e, a in zip(expected, actual, strict=True):
            if node.op_type == "ImageDecoder":
                assert (a.dtype, a.shape) == (e.dtype, e.shape)
                assert np.abs(a.astype(float) - e.astype(float)).max() <= IMAGES
            else:
                assert_equal(e, a, case.rtol)


# ── what makes host values of numbers ──


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING), True),
        (helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT), False),
        (helper.make_node("Constant", [], ["y"], value_string="a"), True),
        (helper.make_node("Constant", [], ["y"], value_strings=["a", "b"]), True),
        (
            helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(LETTERS, "c")),
            True,
        ),
        (helper.make_node("Constant", [], ["y"], value_float=1.0), False),
        (
            helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain=ML, keys_int64s=[1], values_strings=["a"]
            ),
            True,
        ),
        (
            helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain=ML, keys_int64s=[1], values_int64s=[2]
            ),
            False,
        ),
        (helper.make_node("Gather", ["x", "i"], ["y"]), False),
    ],
)
def test_attributes_say_what_makes_strings(node: onnx.NodeProto, expected: bool) -> None:
    assert makes_host_value(node.domain, site(node, 2 if node.domain else 21)) == expected


def test_constants_hold_their_strings() -> None:
    tensor = numpy_helper.from_array(LETTERS, "c")

    assert of("Constant", value_string="a").reference().tolist() == "a"
    assert of("Constant", value_strings=["a", "b"]).reference().tolist() == ["a", "b"]
    assert_equal(LETTERS, of("Constant", value=tensor).reference())


def test_an_optional_may_be_made_of_its_type() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))

    assert of("Optional", type=kind).reference() is None


def test_every_hosted_form_is_of_an_operator_that_onnx_defines() -> None:
    for name in supported_on_host():
        domain, _, op_type = name.rpartition(":")

        assert onnx.defs.has(op_type, domain), name


# ── values written here ──


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (SequenceAt(), ([np.zeros(1), np.ones(2)], np.array(-1)), np.ones(2)),
        (sequences.SequenceErase(), ([np.zeros(1), np.ones(2)],), [np.zeros(1)]),
        (sequences.SequenceLength(), ([],), np.array(0)),
        (sequences.SequenceConstruct(), (np.zeros(1), np.ones(2)), [np.zeros(1), np.ones(2)]),
        (sequences.ConcatFromSequence(0), ([np.zeros(1), np.ones(2)],), np.array([0.0, 1, 1])),
        (
            sequences.ConcatFromSequence(-1, True),
            ([np.zeros(1), np.ones(1)],),
            np.array([[0.0, 1]]),
        ),
        (sequences.SplitToSequence(0), (np.arange(2),), [np.array([0]), np.array([1])]),
        (sequences.SplitToSequence(0), (np.arange(3), np.array(2)), [np.arange(2), np.array([2])]),
        (strings.ParseNumbers("u8"), (text(["255", "0.9"]),), np.array([255, 0], np.uint8)),
        (strings.FormatNumbers(), (np.array([0.1, 100], np.float16),), text(["0.1", "100"])),
        (strings.CastLike(), (text(["2"]), np.zeros(1, np.int8)), np.array([2], np.int8)),
        (labels.MapLabels((math.nan, 0.5), ("a", "b"), "c"), (np.array([np.nan, 0.5, 1], "f"),),
         text("abc")),
        (labels.VectorizeMap(("a", "b")), ({"b": 3},), np.array([[0, 3]])),
        (labels.CastMap("string"), ({2: 1.5, 1: 2.0},), text(["2", "1.5"], (1, 2))),
    ],
)  # fmt: skip
def test_value(op: Host, operands: tuple[Any, ...], expected: Any) -> None:
    assert_equal(expected, op.reference(*operands))
