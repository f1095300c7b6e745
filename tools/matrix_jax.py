"""The functions of JAX among the models of `matrix.py`: as exported objects, and as bytecode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

import alpenglow as ag
from matrix_models import Model


def cnn(params: dict[str, Any], x: Any) -> Any:
    """Return the scores of images by a convolution, a mean and a dense layer."""
    dims = ("NCHW", "OIHW", "NCHW")
    y = jax.nn.relu(lax.conv_general_dilated(x, params["w"], (1, 1), "SAME",
                                             dimension_numbers=dims))  # fmt: skip
    return y.mean((2, 3)) @ params["v"]


def attention(params: dict[str, Any], x: Any) -> Any:
    """Return x plus its attention to itself, normalised."""
    q, k, v = (x @ params[n] for n in ("q", "k", "v"))
    y = x + jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / 4) @ v
    return (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)


def recurrent(params: dict[str, Any], x: Any) -> Any:
    """Return the states that a scan goes through."""

    def turn(h: Any, row: Any) -> tuple[Any, Any]:
        h = jnp.tanh(row @ params["w"] + h @ params["r"])
        return h, h

    return lax.scan(turn, jnp.zeros(8), x)[1]


def models(folder: Path) -> Iterator[Model]:
    """Yield exported functions, and their bytecode."""
    rng = np.random.default_rng(3)

    def drawn(*shape: int) -> Any:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    (n,) = export.symbolic_shape("n")
    made: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = {
        "CNN": (cnn, {"w": drawn(8, 3, 3, 3), "v": drawn(8, 4)}, (n, 3, 8, 8)),
        "attention": (attention, {c: drawn(16, 16) for c in "qkv"}, (2, 4, 16)),
        "scan": (recurrent, {"w": drawn(8, 8), "r": drawn(8, 8)}, (3, 8)),
    }
    for name, (function, params, shape) in made.items():
        x = jax.ShapeDtypeStruct(shape, np.float32)
        exported = export.export(jax.jit(function))(params, x)
        path = folder / f"{name}.mlirbc"
        path.write_bytes(exported.mlir_module_serialized)
        # Values whose names JAX has not kept are called by their paths.
        count = len(params)
        names = tuple(ag.load(exported).inputs)[:count]
        yield Model(name, "JAX", exported, {"n": 2} if n in shape else {}, parameters=names)
        names = tuple(ag.load(path).inputs)[:count]
        yield Model(f"bytecode {name}", "StableHLO", path, parameters=names)
