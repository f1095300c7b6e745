"""What `jax.export` makes: objects and files, the names of their inputs, and open extents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.front_end import StablehloFrontEnd
from alpenglow.frontends.stablehlo.loading import load


def dense(p: Any, x: Any, unused: Any, *, k: Any) -> Any:
    return {"y": (x @ p["w"] + p["b"]) * k, "sum": x.sum()}


ARGUMENTS = ({"w": jnp.ones((4, 5)), "b": jnp.zeros(5)}, jnp.ones((3, 4)), jnp.ones(7))


def exported() -> Any:
    return export.export(jax.jit(dense))(*ARGUMENTS, k=2.0)


def test_an_object_and_its_file_have_the_same_inputs(tmp_path: Path) -> None:
    file = tmp_path / "dense.jax"
    file.write_bytes(bytes(exported().serialize()))

    for model in (exported(), file, file.read_bytes()):
        assert StablehloFrontEnd().accepts(model)
        graph = load(model)
        assert list(graph.inputs) == ["p.b", "p.w", "x", "2", "k"]
        assert list(graph.outputs) == ["result['sum']", "result['y']"]


def test_bytecode_by_itself_has_names_of_what_it_reads() -> None:
    graph = load(exported().mlir_module_serialized)

    assert list(graph.inputs) == ["p.b", "p.w", "x", "k"]
    assert graph.name == "jit_dense"


def test_a_program_runs_with_what_it_does_without() -> None:
    names = "p.b", "p.w", "x", "2"
    feeds = dict(zip(names, map(np.asarray, jax.tree.leaves(ARGUMENTS)), strict=True))
    made = ag.compile(load(exported())).run({**feeds, "k": np.float32(2)})

    assert made["result['y']"].tolist() == np.full((3, 5), 8.0).tolist()


def test_a_program_for_another_platform_is_refused() -> None:
    model = export.export(jax.jit(lambda x: x + 1), platforms=["tpu"])(jnp.ones(3))

    with pytest.raises(UnsupportedError, match="exported for tpu"):
        load(model)


def test_open_extents_have_their_names() -> None:
    (b,) = export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((b, 4), jnp.float32)
    model = load(export.export(jax.jit(lambda x: x @ x.T + x.shape[0]))(shape))

    exe = ag.compile(model)
    for n in (2, 5):
        x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        np.testing.assert_allclose(exe.run({"0": x})["result"], x @ x.T + n)


def test_a_file_that_is_damaged_is_an_error() -> None:
    content = bytes(exported().serialize())

    for at in range(0, len(content), 97):
        damaged = content[:at] + b"\xff" + content[at + 1 :]
        try:
            load(damaged)
        except (ModelError, UnsupportedError) as error:
            assert re.search(r"offset|byte|line|damaged|exported|argument|told|input", str(error))
