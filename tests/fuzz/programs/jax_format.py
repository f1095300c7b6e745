"""StableHLO as a format: programs are functions of JAX, exported; XLA says what is right."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax import export
from jax import numpy as jnp

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

from ..dice import SYMBOLS
from ..elements import Array
from ..judge import Feeds
from ..reference import Reference
from .beside import Undefined
from .jax_writer import GLOBALS, JaxWriter
from .program import Program


def function_of(program: Program) -> Callable[..., Any]:
    """Return a program as a function of its inputs."""
    weights = {k: jnp.asarray(a) for k, a in program.weights.items()}
    scope: dict[str, Any] = {**GLOBALS, **weights}
    exec(program.source(), scope)
    made: Callable[..., Any] = scope["f"]
    return gradient_of(made, program) if asks_gradients(program) else made


def asks_gradients(program: Program) -> bool:
    """Return True if gradients of a program stand for it, as of one in three."""
    return zlib.crc32(program.lines[0].text.encode()) % 3 == 0


def gradient_of(function: Callable[..., Any], program: Program) -> Callable[..., Any]:
    """Return what computes the gradients of all floats by all floats, or else the function."""
    smooth = [i for i, a in enumerate(program.inputs.values())
              if a.dtype in (np.float32, np.float64)]  # fmt: skip

    def total(*xs: Any) -> Any:
        floats = [y for y in function(*xs) if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum((y.astype(jnp.float64) * (1.0 + i)).sum() for i, y in enumerate(floats))

    # The inputs of an export are called as the arguments are.
    names = ", ".join(program.inputs)
    scope: dict[str, Any] = {"derived": jax.grad(total, smooth)}
    exec(f"def gradients({names}):\n    return derived({names})", scope)
    gradients: Callable[..., Any] = scope["gradients"]
    return gradients if smooth else function


class JaxFormat:
    """Programs as functions that `jax.export` lowers to StableHLO."""

    name = "xla"
    opens = True
    nan = True
    tiny = False
    _last: tuple[Program | None, Any] = (None, None)

    def session(self) -> AbstractContextManager[Any]:
        """Return a context in which elements may have 64 bits, as other tests may not have them."""
        made: AbstractContextManager[Any] = jax.enable_x64(True)
        return made

    def writer(self) -> JaxWriter:
        """Return what writes a new program."""
        return JaxWriter()

    def loaded(self, program: Program, feeds: Feeds, is_open: bool) -> Graph | StagedModel:
        """Import a program as it is exported."""
        inputs = [np.asarray(feeds[k]) for k in program.inputs]
        is_open = is_open and program.is_open
        try:
            given = _symbolic(inputs) if is_open else inputs
            exported = export.export(jax.jit(function_of(program)))(
                **dict(zip(program.inputs, given, strict=True))
            )
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            raise Undefined(f"export: {type(error).__name__}: {text[:100]}") from error
        return ag.load(exported)

    def run(self, program: Program, feeds: Feeds) -> dict[str, Array]:
        """Return outputs of XLA."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = self._compiled(program)(*(feeds[k] for k in program.inputs))
                arrays = [np.asarray(y) for y in made]
            except Exception as error:
                raise Undefined(f"xla: {type(error).__name__}") from error
        return {f"result[{i}]": y for i, y in enumerate(arrays)}

    def _compiled(self, program: Program) -> Any:
        """Return the function that XLA compiles; the last one is kept."""
        if program is not self._last[0]:
            self._last = program, jax.jit(function_of(program))
        return self._last[1]

    def more(
        self, program: Program, references: Mapping[int, Reference], seed: int
    ) -> list[tuple[str, str]]:
        """Return nothing: there is no other way."""
        return []


def _symbolic(inputs: list[Array]) -> list[Any]:
    """Return types of inputs, the extents of SYMBOLS open."""
    names = {n: k for k, n in SYMBOLS.items()}
    scope = export.SymbolicScope()
    texts = [",".join(str(names.get(n, n)) for n in a.shape) for a in inputs]
    shapes = [export.symbolic_shape(text, scope=scope) for text in texts]
    return [jax.ShapeDtypeStruct(s, a.dtype) for s, a in zip(shapes, inputs, strict=True)]
