"""TFLite as a format: programs are files, and LiteRT says what is right."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from ai_edge_litert.interpreter import Interpreter, OpResolverType

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

from ..elements import Array
from ..judge import Feeds
from ..reference import Reference
from .beside import Undefined
from .program import Program
from .tflite_writer import HELPERS, QUANTISED, Model, TfliteWriter, added, scope_of


def file_of_program(program: Program) -> bytes:
    """Return a program as a file."""
    model = Model()
    scope = {**scope_of(model), **HELPERS}
    for name, array in {**program.inputs, **program.weights}.items():
        scope[name] = added(model, name, array, name in program.weights)
    for line in program.lines:
        exec(line.text, scope)
    return model.content([scope[n] for n in program.outputs])


def rounds_as_reference(program: Program) -> bool:
    """Return True if LiteRT's reference kernels decide, which have one rule for integers."""
    return any(h in line.text for line in program.lines for h in ("QUANTIZE",)) or any(
        str(a.dtype) in QUANTISED for a in (*program.inputs.values(), *program.weights.values())
    )


class TfliteFormat:
    """Programs as files."""

    name = "litert"
    opens = False
    nan = False
    tiny = False

    def session(self) -> AbstractContextManager[None]:
        """Return a context for programs, which need none."""
        return nullcontext()

    def writer(self) -> TfliteWriter:
        """Return what writes a new program."""
        return TfliteWriter()

    def loaded(self, program: Program, feeds: Feeds, is_open: bool) -> Graph | StagedModel:
        """Import a program; its extents are those that it was drawn with."""
        try:
            content = file_of_program(program)
        except Exception as error:
            raise Undefined(f"write: {type(error).__name__}: {error}"[:120]) from error
        rounding = "reference" if rounds_as_reference(program) else "xnnpack"
        return ag.load(content, rounding=rounding)

    def run(self, program: Program, feeds: Feeds) -> dict[str, Array]:
        """Return outputs of LiteRT."""
        content = file_of_program(program)
        reference = rounds_as_reference(program)
        kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
        try:
            it = Interpreter(model_content=content, num_threads=1,
                             experimental_op_resolver_type=kind)  # fmt: skip
            it.allocate_tensors()
            for d, name in zip(it.get_input_details(), program.inputs, strict=True):
                it.set_tensor(d["index"], feeds[name])
            it.invoke()
            results = [it.get_tensor(d["index"]) for d in it.get_output_details()]
        except (RuntimeError, ValueError) as error:
            raise Undefined(f"litert: {error}"[:120]) from error
        return dict(zip(ag.load(content).outputs, results, strict=True))

    def more(
        self, program: Program, references: Mapping[int, Reference], seed: int
    ) -> list[tuple[str, str]]:
        """Return nothing: there is no other way."""
        return []
