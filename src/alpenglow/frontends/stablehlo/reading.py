"""Sources of a program: text, bytecode, or the result of `jax.export`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.files import content_of
from alpenglow.frontends.stablehlo.bytecode.artifact import PLATFORM, Artifact, of_file, of_object
from alpenglow.frontends.stablehlo.bytecode.portable import read_bytecode
from alpenglow.frontends.stablehlo.elements import element, supported
from alpenglow.frontends.stablehlo.module import Function, Module, Tensor
from alpenglow.frontends.stablehlo.text.look import BYTECODE, is_artifact, is_exported
from alpenglow.frontends.stablehlo.text.text import read_text
from alpenglow.ir.dims import Dim


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a program: its name, element type and extents, and if the function takes it."""

    name: str
    dtype: str
    shape: tuple[Dim | None, ...]
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a program, what to call it in messages, and what else is said of it."""

    content: bytes
    file: str
    artifact: Artifact | None = None

    @classmethod
    def of(cls, model: Any) -> Source:
        """Return the source of a model; raise ModelError if it cannot be read."""
        if is_exported(model):
            artifact = of_object(model)
            return cls(artifact.content, "model", artifact)
        content, file = content_of(model)
        if content[:4] != BYTECODE and is_artifact(BytesIO(content)):
            try:
                artifact = of_file(content)
            except ModelError as error:
                raise error.located(file=file) from None
            return cls(artifact.content, file, artifact)
        return cls(content, file)

    def inputs(self, main: Function) -> list[Input]:
        """Return the inputs in order; raise ModelError if what is said of them does not fit."""
        own = []
        told = _told(main)
        numbered = self.content[:4] == BYTECODE  # which has no names
        for i, (argument, t) in enumerate(main.body.arguments):
            name = told[i] or (f"arg{i}" if numbered else argument)
            if not isinstance(t, Tensor) or t.shape is None:
                raise UnsupportedError(f"input '{name}' is {t}, expected a tensor of known rank")
            own.append(Input(name, element(f"input '{name}'", t), t.shape))
        if self.artifact is None:
            return own
        kept = [a for a in self.artifact.arguments if a.kept]
        if len(kept) != len(own):
            raise ModelError(
                f"the program takes {len(own)} arguments, expected {len(kept)} as in "
                "module_kept_var_idx"
            )
        merged = iter(own)
        inputs = [
            self._input(a, next(merged) if a.kept else None) for a in self.artifact.arguments
        ]
        names = iter(told)
        called = [(next(names) if a.kept else "") or a.name for a in self.artifact.arguments]
        if len(set(called)) < len(called):
            return inputs
        return [replace(x, name=name) for x, name in zip(inputs, called, strict=True)]

    def _input(self, a: Any, own: Input | None) -> Input:
        if own is None:
            dtype = supported(f"input '{a.name}'", a.dtype)
            return Input(a.name, dtype, a.shape, False)
        if len(a.shape) != len(own.shape):
            rank = len(a.shape)
            raise ModelError(f"input '{a.name}' has rank {len(own.shape)}, expected {rank}")
        shape = tuple(s if d is None else d for d, s in zip(own.shape, a.shape, strict=True))
        return Input(a.name, own.dtype, shape)

    def outputs(self, main: Function) -> list[str]:
        """Return the names of the outputs, as JAX tells them, or by number."""
        told = [a.get("jax.result_info") for a in main.result_attributes]
        said = [name for name in told if isinstance(name, str) and name]
        count = len(main.signature.results)
        if len(told) == len(said) == len(set(said)) == count:
            return said
        return ["result"] if count == 1 else [f"result{i}" for i in range(count)]


def _told(main: Function) -> list[str]:
    """Return the names of arguments as paths, ``params.w``; "" for an argument without a name."""
    names = [re.sub(r"\[['\"]?([^]'\"]*)['\"]?\]", r".\1", n) for n in main.argument_names]
    usable = len(set(filter(None, names))) == sum(map(bool, names))
    names = [n if usable else "" for n in names]
    return names or [""] * len(main.body.arguments)


def read(source: Source) -> Module:
    """Return the module that a source holds; raise ModelError where it is damaged."""
    if source.artifact is not None and PLATFORM not in source.artifact.platforms:
        listed = ", ".join(source.artifact.platforms)
        raise UnsupportedError(
            f"the program was exported for {listed}, expected {PLATFORM}",
            hint='export(..., platforms=["cpu"])',
        )
    if source.content[:4] == BYTECODE:
        return read_bytecode(source.content)
    try:
        text = source.content.decode()
    except UnicodeDecodeError as error:
        raise ModelError(
            f"byte {error.start} is not UTF-8, expected text or bytecode of StableHLO"
        ) from error
    return read_text(text)
