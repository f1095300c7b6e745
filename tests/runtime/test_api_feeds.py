"""What callers give that does not fit: all of it is an error of ours, and what data cause a
FeedError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

import alpenglow as ag
from alpenglow.base.errors import (
    AlpenglowError,
    FeedError,
    ModelError,
    OptionError,
    TypeRuleError,
)
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.runtime.call.feeds import as_array, fitting
from open_cases import helper, model, weights
from staged_cases import CASES

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("no_cache")

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def negated() -> ag.Executable:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[2,3]")))
    return ag.compile(g, threads=1)


def whole(nodes: list[Any], inputs: list[Any], constants: dict[str, Array]) -> Any:
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    tensors = [helper.make_tensor(n, I64, a.shape, a.flatten()) for n, a in constants.items()]
    result = helper.make_empty_tensor_value_info("y")
    g = helper.make_graph(nodes, "g", infos, [result], tensors)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def top_k() -> Any:
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", ""], name="best")]
    return whole(nodes, [("x", F32, ["N"]), ("k", I64, [1])], {})


def reshaped() -> Any:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="turn")]
    return whole(nodes, [("x", F32, ["N"])], {"s": np.array([2, -1])})


def resized() -> Any:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], name="big", mode="nearest")]
    return whole(nodes, [("x", F32, [1, 1, 4, 4]), ("scales", F32, [4])], {})


def summed() -> Any:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum")]
    nodes[0].input[1] = "axes"
    g = whole(nodes, [("x", F32, ["N", 3]), ("axes", I64, [1])], {})
    return g


X5, X23 = np.zeros(5, np.float32), np.zeros((2, 3), np.float32)

CAUSED = {
    "an element": (top_k, {"x": X5, "k": np.array([1_000_000])}, ["k[0]=1000000", "k : i64[1]"]),
    "an extent": (reshaped, {"x": X5}, ["x : f32[5]"]),
    "an axis": (summed, {"x": X23, "axes": np.array([7])}, ["node ReduceSum 'sum'"]),
    "fractions": (
        resized,
        {"x": np.zeros((1, 1, 4, 4), np.float32), "scales": -np.ones(4, np.float32)},
        ["scales : f32[4]", "'big'"],
    ),
}


@pytest.mark.parametrize("what", CAUSED)
def test_data_that_a_model_cannot_take_are_the_caller_s_mistake(what: str) -> None:
    make, feeds, says = CAUSED[what]
    exe = ag.compile(make(), threads=1)
    for _ in range(2):
        with pytest.raises(FeedError) as caught:
            exe.run(feeds)

        assert all(part in str(caught.value) for part in says), str(caught.value)
        assert isinstance(caught.value.__cause__, TypeRuleError | ModelError)


def test_a_model_that_is_wrong_stays_wrong_as_it_runs() -> None:
    then = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["a"])], "b", [],
        [helper.make_empty_tensor_value_info("a")],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="it", then_branch=then)
    exe = ag.compile(whole([node], [("x", F32, [3]), ("c", TensorProto.BOOL, [])], {}))
    with pytest.raises(ModelError, match="else_branch"):
        exe.run({"x": np.zeros(3, np.float32), "c": np.array(False)})


@pytest.mark.parametrize("mask", [True, False])
def test_masked_arrays_are_refused(mask: bool) -> None:
    x = np.ma.masked_array(X23, np.full((2, 3), mask))
    with pytest.raises(FeedError, match="input 'x' is a masked array") as caught:
        negated()(x)
    assert "filled" in caught.value.hint

    nonzero = CASES["nonzero"]
    feeds = nonzero.calls()[0]
    with pytest.raises(FeedError, match="masked"):
        ag.compile(nonzero.model()).run({**feeds, "x": np.ma.masked_array(feeds["x"])})
    with pytest.raises(FeedError, match="masked"):
        unranked = whole([helper.make_node("Neg", ["x"], ["y"])], [("x", F32, None)], {})
        ag.compile(unranked).run({"x": x})


class Tensor:
    """An array of somebody else's with DLPack, and with NumPy's protocol if it has that too."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **wanted: Any) -> Any:
        return self.array.__dlpack__(**wanted)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Frame:
    """A table of columns, as pandas has it: `__array__` gives a view of columns, transposed."""

    def __init__(self, columns: Array) -> None:
        self.columns = columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.columns.T, dtype)


class Elsewhere(Tensor):
    """An array on a device, which does not hand out its memory."""

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __dlpack__(self, **wanted: Any) -> Any:
        raise BufferError("this array is on another device")


class Refusing:
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError("use tensor.cpu() first")


def test_arrays_of_others_are_not_copied_if_they_are_dense() -> None:
    t = negated().inputs["x"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for form in (Tensor(x), Frame(np.asfortranarray(x).T), memoryview(x)):
        taken = fitting("x", form, t, t.numpy, (2, 3))

        assert np.shares_memory(taken, x) or isinstance(form, Frame)
        np.testing.assert_array_equal(x, taken)
        np.testing.assert_array_equal(-x, negated()(form))
    columns = Frame(x.T.copy().T.T)
    np.testing.assert_array_equal(-columns.columns.T, negated()(columns))
    assert np.shares_memory(as_array("x", Tensor(x.T), t), x)


def test_tables_with_columns_of_several_types_are_refused() -> None:
    mixed = Frame(np.array([[1.0, 2.0], ["a", "b"], [1, 2]], object))
    with pytest.raises(FeedError, match="input 'x' is object, expected float32"):
        negated()(mixed)


@pytest.mark.parametrize("elsewhere", [Elsewhere(X23), Refusing()])
def test_arrays_on_other_devices_are_refused(elsewhere: Any) -> None:
    with pytest.raises(FeedError, match="input 'x': expected an array of float32") as caught:
        negated()(elsewhere)

    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("threads", [True, False, "2", 1.0])
def test_threads_are_a_number(threads: Any) -> None:
    g = ag.Graph("g")
    g.output("y", g(Neg(), g.input("x", "f32[1]")))
    with pytest.raises(OptionError, match="threads is"):
        ag.compile(g, threads=threads)


@pytest.mark.parametrize("form", ["graph", "proto", "path"])
@pytest.mark.parametrize("shapes", [[(2, 8)], {"x": 3}, {"x": "ab"}, {"x": (2.0, 8.0)}, "x"])
def test_shapes_of_another_kind_are_refused(
    form: str, shapes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)},
                  {"w": weights(8, 4)})  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    given = {"graph": ag.load(proto), "proto": proto, "path": tmp_path / "m.onnx"}[form]
    with pytest.raises(
        AlpenglowError, match=r"expected a dict from|no sequence of integers|expected integers for"
    ):
        ag.compile(given, shapes=shapes)


def same(ir: Any, target: ag.Target) -> Any:
    """Leave everything
    as it is.

    And say so.
    """
    return ir


def test_a_pass_is_told_by_its_docstring() -> None:
    assert ag.Pass("mine", same, after="fold").doc == "Leave everything as it is."
    assert ag.Pass("mine", same, "other words").doc == "other words"
    assert ag.Pass("mine", lambda ir, target: ir).doc == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"passes": (same,)}, "expected Pass"),
        ({"passes": same}, "expected a tuple of Pass"),
        ({"passes": ag.Pass("mine", same)}, "expected a tuple of Pass"),
        ({"passes": "fold"}, "expected a tuple of Pass"),
        ({"progress": True}, "progress is True, expected a function"),
        ({"after": "fuse"}, "after is 'fuse', expected a function"),
    ],
)
def test_options_of_another_kind_are_refused(options: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        ag.Options(**options)
    with pytest.raises(OptionError, match="expected a function"):
        ag.Pass("mine", "same")  # type: ignore[arg-type]


def test_an_archive_is_opened_not_compiled(tmp_path: Path) -> None:
    path = tmp_path / "x.ago"
    negated().save(path)
    for archive in (path, str(path), path.read_bytes()):
        with pytest.raises(ModelError, match="this is an archive") as caught:
            ag.compile(archive)

        assert "open(…)" in caught.value.hint
