"""`compile` keeps what it made of a model file, and uses it only where it would make the same."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.store import StoreWarning

Array = NDArray[Any]
COMPILE, KEPT = (import_module(f"alpenglow.driver.{n}") for n in ("compile", "artifact_cache"))
FOREIGN = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Use an empty store; return a list of the targets that something is compiled for."""
    made: list[str] = []
    compile_graph = KEPT.compile_graph

    def watched(graph: ag.Graph, target: ag.Target, *rest: Any, owned: bool = False) -> Any:
        made.append(target.name)
        return compile_graph(graph, target, *rest, owned=owned)

    for module in (COMPILE, KEPT):
        monkeypatch.setattr(module, "compile_graph", watched)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("ALPENGLOW_CHECK", raising=False)
    return made


def model(path: Path, factor: float = 2.0) -> Path:
    """Write a model that multiplies by a constant too large to stand inline."""
    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "scale",
        [helper.make_tensor_value_info("x", kind, ["N", 40])],
        [helper.make_tensor_value_info("y", kind, ["N", 40])],
        [helper.make_tensor("w", kind, [40], [factor] * 40)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def run(path: Path, target: str = "cpu", n: int = 3, **chosen: Any) -> Array:
    exe = ag.compile(path, target, threads=1, shapes={"x": (n, 40)}, **chosen)
    x = np.arange(n * 40, dtype=np.float32).reshape(n, 40)
    return np.asarray(exe(x) / x.clip(1))[:, 1:]


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_model_is_compiled_once(tmp_path: Path, compiled: list[str], target: str) -> None:
    path = model(tmp_path / "a.onnx")
    results = [run(path, target) for _ in range(3)]

    assert compiled == [target]
    assert all((result == 2).all() for result in results)


def test_a_file_met_before_is_not_read_as_a_model(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "a.onnx")
    run(path)
    monkeypatch.setattr(COMPILE, "load", None)

    assert (run(path) == 2).all() and len(compiled) == 1


def test_weights_in_another_file_are_looked_at_each_time(
    tmp_path: Path, compiled: list[str]
) -> None:
    path, weights = tmp_path / "a.onnx", tmp_path / "a.weights"
    scale = onnx.load(model(path))
    (w,) = scale.graph.initializer
    w.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(w), w.name))
    onnx.save(scale, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    assert (run(path) == 2).all() and (run(path) == 2).all() and len(compiled) == 1
    weights.write_bytes(np.full(40, 3, np.float32).tobytes())

    assert (run(path) == 3).all() and len(compiled) == 2


def test_what_is_kept_of_another_target_can_be_saved(tmp_path: Path, compiled: list[str]) -> None:
    path = model(tmp_path / "a.onnx")
    saved = []
    for _ in range(2):
        ag.compile(path, FOREIGN, shapes={"x": (3, 40)}).save(tmp_path / "a.ago")
        saved.append((tmp_path / "a.ago").read_bytes())

    assert compiled == [FOREIGN] and saved[0] == saved[1]


def test_another_model_shape_target_or_numerics_is_compiled(
    tmp_path: Path, compiled: list[str]
) -> None:
    first, second = model(tmp_path / "a.onnx"), model(tmp_path / "b.onnx", factor=3.0)
    assert (run(first) == 2).all() and (run(second) == 3).all()
    assert (run(first, n=4) == 2).all() and (run(first, "interpreter") == 2).all()
    assert (run(first, options=ag.Options(numerics="strict")) == 2).all()

    assert len(compiled) == 5


def test_options_that_look_on_or_change_the_pipeline_compile_anew(
    tmp_path: Path, compiled: list[str]
) -> None:
    path = model(tmp_path / "a.onnx")
    seen: list[str] = []
    nothing = ag.Pass("nothing", lambda ir, target: ir, "changes nothing", after="fold")
    options = ag.Options()
    run(path)
    run(path, options=replace(options, passes=(nothing,)))
    run(path, options=replace(options, after=lambda p, ir: seen.append(p.name)))
    run(path, options=replace(options, check=True))

    assert len(compiled) == 4 and "fold" in seen


def test_nothing_is_kept_without_a_store(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    path = model(tmp_path / "a.onnx")
    for _ in range(2):
        run(path)

    assert len(compiled) == 2


def test_a_damaged_entry_is_made_again(tmp_path: Path, compiled: list[str]) -> None:
    path = model(tmp_path / "a.onnx")
    run(path)
    for entry in (tmp_path / "store").iterdir():
        content = bytearray(entry.read_bytes())
        content[-1] ^= 1
        entry.write_bytes(content)
    with pytest.warns(StoreWarning, match="damaged"):
        assert (run(path) == 2).all()

    assert len(compiled) == 2
    assert (run(path) == 2).all() and len(compiled) == 2
