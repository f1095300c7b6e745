"""What others write after `load` or `compile` returned, into a file or an array, changes no result.

A file that is mapped because that was asked for is an error once it was written into.
"""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow import train
from alpenglow.base import knobs, store
from alpenglow.base.errors import ModelError
from alpenglow.driver import artifact_cache
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.runtime.archive import archive
from frontends.tflite import flat

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Harm = Callable[[Path], None]

pytestmark = [
    pytest.mark.usefixtures("no_cache"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows replaces no file that is mapped"),
]

N = 64
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((N, N), np.float32) / 8, RNG.standard_normal(N, np.float32)
KINDS = ("fixed", "open", "staged", "state")


def network(kind: str) -> onnx.ModelProto:
    """Return tanh(x w) + b; staged, as often as `k` says; with state, and a mean of all."""
    rows: int | str = 2 if kind in ("fixed", "state") else "n"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, N]) for n in "xy")
    inputs, outputs = [x], [y]
    node = helper.make_node

    def layer(h: str, to: str) -> list[onnx.NodeProto]:
        return [node("MatMul", [h, "w"], [f"{h}1"]), node("Tanh", [f"{h}1"], [f"{h}2"]),
                node("Add", [f"{h}2", "b"], [to])]  # fmt: skip

    nodes = layer("x", "y")
    if kind == "staged":
        scalar = helper.make_tensor_value_info("k", TensorProto.INT64, [])
        carried = helper.make_tensor_value_info("h", TensorProto.FLOAT, None)
        on, went = (helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("on", "went"))
        step = helper.make_tensor_value_info("i", TensorProto.INT64, [])
        later = helper.make_tensor_value_info("later", TensorProto.FLOAT, None)
        body = helper.make_graph([*layer("h", "later"), node("Identity", ["on"], ["went"])],
                                 "body", [step, on, carried], [went, later])  # fmt: skip
        nodes = [node("Loop", ["k", "", "x"], ["y"], body=body)]
        inputs = [x, scalar]
    if kind == "state":
        past, present = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [r, N])
                         for n, r in (("past", "p"), ("present", "q")))  # fmt: skip
        nodes = [*layer("x", "z"), node("Concat", ["past", "z"], ["present"], axis=0),
                 node("ReduceMean", ["present"], ["mean"], axes=[0]),
                 node("Add", ["z", "mean"], ["y"])]  # fmt: skip
        inputs, outputs = [x, past], [y, present]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def calls(kind: str) -> list[Feeds]:
    """Return what is fed before the file is harmed, and behind it: other shapes, other data."""
    rows = (2, 2) if kind in ("fixed", "state") else (2, 5)
    made: list[Feeds] = [{"x": np.full((r, N), 0.1 * r, np.float32)} for r in rows]
    return made if kind != "staged" else [{**f, "k": np.array(i)} for i, f in enumerate(made, 1)]


class Running:
    """A model that is called, by a session where it has state."""

    def __init__(self, exe: ag.Executable, kind: str) -> None:
        self.run = exe.session(16).run if kind == "state" else exe.run

    def __call__(self, feeds: Feeds) -> bytes:
        return b"".join(np.asarray(a).tobytes() for a in self.run(feeds).values())


@functools.cache
def known(kind: str) -> tuple[bytes, bytes, bytes]:
    """Return the results of a model for what is fed, and its archive when it has met all that."""
    exe = compiled(network(kind), kind)
    running = Running(exe, kind)
    first, later = map(running, calls(kind))
    return first, later, archive.to_bytes(exe.archived())


def compiled(model: Any, kind: str) -> ag.Executable:
    return ag.compile(model, threads=1, state={"past": "present"} if kind == "state" else False)


def overwritten(path: Path) -> None:
    nbytes = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\x3f" * nbytes)


def truncated(path: Path) -> None:
    os.truncate(path, 0)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"\x3f" * path.stat().st_size)
    os.replace(other, path)


HARMS = (overwritten, truncated, replaced)

# ── files that are read ──


def onnx_file(folder: Path, kind: str) -> tuple[Path, list[Path]]:
    onnx.save(network(kind), folder / "m.onnx")
    return folder / "m.onnx", [folder / "m.onnx"]


def onnx_with_external_data(folder: Path, kind: str) -> tuple[Path, list[Path]]:
    onnx.save(network(kind), folder / "m.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    return folder / "m.onnx", [folder / "w.bin", folder / "m.onnx"]


@pytest.mark.parametrize(
    ("write", "kind"), [(onnx_file, "staged"), *((onnx_with_external_data, k) for k in KINDS)]
)
def test_what_is_written_into_a_model_changes_no_result(
    tmp_path: Path, write: Callable[..., tuple[Path, list[Path]]], kind: str
) -> None:
    path, files = write(tmp_path, kind)
    (first, later), (before, after, _) = calls(kind), known(kind)
    loaded, exe = ag.load(path), compiled(path, kind)
    assert Running(exe, kind)(first) == before

    for harm in HARMS:
        for file in files:
            harm(file)

        running = Running(exe, kind)
        assert [running(first), running(later)] == [before, after]
    assert Running(compiled(loaded, kind), kind)(first) == before


STABLEHLO = """module @m {
  func.func public @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %y = stablehlo.add %x, %b : tensor<2x4xf32>
    return %y : tensor<2x4xf32>
  }
}
"""
EXPORTED = Path(__file__).parents[1] / "frontends/torch/files/bytes.pt2"


def others(folder: Path, form: str) -> Path:
    path = folder / f"model.{form}"
    if form == "pt2":
        shutil.copyfile(EXPORTED, path)
    elif form == "mlir":
        path.write_text(STABLEHLO)
    else:
        adds = flat.one_op("ADD", ["f32[2,64]", B], ["f32[2,64]"], "AddOptions")
        path.write_bytes(flat.file_of(adds))
    return path


def filled(exe: ag.Executable) -> Feeds:
    return {n: np.ones(t.bind(dict.fromkeys(t.symbols(), 2)).extents, t.numpy)
            for n, t in exe.inputs.items()}  # fmt: skip


@pytest.mark.parametrize("form", ["pt2", "mlir", "tflite"])
def test_what_is_written_into_other_models_changes_no_result(tmp_path: Path, form: str) -> None:
    path = others(tmp_path, form)
    loaded, exe = ag.load(path), ag.compile(path, threads=1)
    feeds = filled(exe)
    expected = Running(exe, "")(feeds)

    for harm in HARMS:
        harm(path)

        assert Running(exe, "")(feeds) == expected
    assert Running(ag.compile(loaded, threads=1), "")(feeds) == expected


# ── arrays ──


@pytest.mark.parametrize("form", ["array", "view", "npy", "npz"])
def test_what_is_written_into_arrays_changes_no_result(tmp_path: Path, form: str) -> None:
    memory = {"w": W.copy(), "b": np.broadcast_to(B, (2, N)).copy()}
    np.savez(tmp_path / "a.npz", **memory)
    for name, array in memory.items():
        np.save(tmp_path / f"{name}.npy", array)
    arrays = {
        "array": lambda: memory,
        "view": lambda: {n: np.frombuffer(memoryview(a).toreadonly(), a.dtype).reshape(a.shape)
                         for n, a in memory.items()},
        "npy": lambda: {n: np.load(tmp_path / f"{n}.npy", mmap_mode="r") for n in memory},
        "npz": lambda: dict(np.load(tmp_path / "a.npz")),
    }[form]()  # fmt: skip
    g = ag.Graph("g")
    x = g.input("x", "f32[2,64]")
    g.output("y", g(Add(), g(MatMul(), x, g.constant(arrays["w"])), g.constant(arrays["b"])))
    running = Running(ag.compile(g, threads=1), "")
    feeds = calls("fixed")[0]
    expected = running(feeds)

    for array in memory.values():
        array[...] = 9
    for path in tmp_path.iterdir():
        overwritten(path)

    assert running(feeds) == expected


# ── training ──


def trained(path: Path | Mapping[str, Array], harmed: Callable[[], None]) -> list[bytes]:
    """Train `w`, with `b` a constant; return what comes of it, harmed between the second step and
    the third, before an evaluation is compiled."""
    if isinstance(path, Path):
        g = ag.load(path)
    else:
        g = ag.Graph("g")
        x, w = g.input("x", "f32[2,64]"), g.constant(path["w"], "w")
        g.output("y", g(Add(), g(MatMul(), x, w), g.constant(path["b"], "b")))
    g = train.supervise(train.trainable(g, "w"), "mse")
    trainer = train.Trainer(g, "loss", train.Adam(0.01), threads=1)
    feeds = {"x": calls("fixed")[0]["x"], "labels": np.zeros((2, N), np.float32)}
    losses = [trainer.step(feeds)["loss"] for _ in range(2)]
    harmed()
    losses += [trainer.step(feeds)["loss"] for _ in range(2)]
    losses.append(np.float64(trainer.evaluate(feeds)["loss"]))
    used = ag.compile(trainer.trained(), threads=1)
    return [*(loss.tobytes() for loss in losses), Running(used, "")({"x": feeds["x"]})]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("write", [onnx_file, onnx_with_external_data])
@pytest.mark.sampled(2)
def test_what_is_written_into_a_model_changes_nothing_that_is_trained(
    tmp_path: Path, write: Callable[..., tuple[Path, list[Path]]], harm: Harm
) -> None:
    path, files = write(tmp_path, "fixed")

    def harmed() -> None:
        for file in files:
            harm(file)

    expected = trained(path, lambda: None)

    assert trained(path, harmed) == expected


def test_what_is_written_into_arrays_changes_nothing_that_is_trained() -> None:
    rows = np.broadcast_to(B, (2, N))
    memory = {"w": W.copy(), "b": rows.copy()}

    def harmed() -> None:
        for array in memory.values():
            array[...] = 9

    assert trained(memory, harmed) == trained({"w": W, "b": rows}, lambda: None)


# ── files that are mapped ──


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(("kind", "weights"), [*((k, None) for k in KINDS), ("fixed", "64KB")])
def test_a_mapped_archive_that_is_written_into_is_an_error(
    tmp_path: Path, kind: str, harm: Harm, weights: str | None
) -> None:
    path = tmp_path / "m.ago"
    (first, later), (before, after, content) = calls(kind), known(kind)
    path.write_bytes(content)
    exe = ag.open(path, threads=1, mmap=True, weights=weights)
    running = Running(exe, kind)
    assert running(first) == before

    harm(path)

    if harm is replaced:
        assert running(later) == after
        return
    for attempt in (lambda: running(later), lambda: running(first), lambda: pickle.dumps(exe),
                    lambda: Running(exe, kind)(first)):  # fmt: skip
        with pytest.raises(ModelError, match="was written into") as caught:
            attempt()
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_during_a_long_call_is_an_error_of_that_call(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.ago"
    (first, _), (before, _, content) = calls(kind), known(kind)
    path.write_bytes(content)
    exe = ag.open(path, threads=1, mmap=True)
    running = Running(exe, kind)
    assert running(first) == before
    (file,) = _maps(exe)
    checks = iter(range(100))

    def check(sound: Callable[[], None] = file.check) -> None:
        sound()
        if next(checks) == 0:  # what is read from now on is other numbers
            overwritten(path)

    file.check = check  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="was written into"):
        running.run(first, timeout=60)  # as all that may be long are run


def _maps(exe: ag.Executable) -> Sequence[Any]:
    arrays = [b.array for a in exe.artifacts for b in a.program.buffers.values()]
    return archive.maps_of(arrays)


def test_a_large_entry_of_the_cache_is_mapped_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs, "cache_folder", lambda: tmp_path / "cache")
    onnx.save(network("fixed"), tmp_path / "m.onnx")
    expected = Running(ag.compile(tmp_path / "m.onnx", threads=1), "")(calls("fixed")[0])
    small = ag.compile(tmp_path / "m.onnx", threads=1)
    monkeypatch.setattr(store, "COPIED_NBYTES", 1 << 10)
    large = ag.compile(tmp_path / "m.onnx", threads=1)
    assert len(_maps(large)) == 1 and not _maps(small)
    for entry in (tmp_path / "cache").iterdir():
        truncated(entry)

    assert Running(small, "")(calls("fixed")[0]) == expected
    with pytest.raises(ModelError, match="was written into"):
        Running(large, "")(calls("fixed")[0])


def test_a_file_that_is_written_between_its_hash_and_its_import_is_not_taken_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs, "cache_folder", lambda: tmp_path / "cache")
    path, before, after = tmp_path / "m.onnx", network("fixed"), network("fixed")
    after.graph.initializer[1].CopyFrom(numpy_helper.from_array(B + 1, "b"))
    onnx.save(before, path)
    hashed = artifact_cache._hash_of

    def then_written(*given: Any) -> Any:
        found = hashed(*given)
        path.write_bytes(after.SerializeToString())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(artifact_cache, "_hash_of", then_written)
        ag.compile(path, threads=1)
    path.write_bytes(before.SerializeToString())
    feeds = calls("fixed")[0]

    expected = Running(ag.compile(before, threads=1), "")(feeds)
    assert Running(ag.compile(path, threads=1), "")(feeds) == expected
