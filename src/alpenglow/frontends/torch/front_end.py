"""The front end of PyTorch as the registry sees it.

torch is never imported here: who has one of its objects has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from alpenglow.base.errors import AlpenglowError, ModelError, OptionError, UnsupportedError
from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head
from alpenglow.ir.constant_inputs import fix
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.staged import StagedModel

SUFFIX = ".pt2"

ZIP = b"PK\3\4"
"""How an archive begins that has an entry."""


class TorchFrontEnd(DecidingFrontEnd):
    """Reads ExportedPrograms and the files that they are saved in, and traces modules."""

    name = "torch"
    version = "1"

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return model[: len(ZIP)] == ZIP
        if isinstance(model, str | Path):
            return Path(model).suffix == SUFFIX or head(Path(model), len(ZIP)) == ZIP
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(
            model, torch.export.ExportedProgram | torch.nn.Module
        )

    def capture(
        self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
    ) -> Any:
        torch = sys.modules["torch"]
        if not isinstance(model, torch.nn.Module):
            raise OptionError(
                f"the model is a traced {type(model).__name__}, expected a torch.nn.Module "
                "with args, kwargs or dynamic_shapes"
            )
        trace = import_module("alpenglow.frontends.torch.capture").capture
        return trace(model, args, kwargs, dynamic_shapes)

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        if isinstance(model, bytes | str | Path):
            program = import_module("alpenglow.frontends.torch.pt2.pt2").program_of(model)
        elif isinstance(model, sys.modules["torch"].nn.Module):
            raise ModelError(
                f"{type(model).__name__} is a module of PyTorch, whose graph depends on its inputs",
                hint="give example inputs: compile(module, args=(x,))",
            )
        else:
            program = import_module("alpenglow.frontends.torch.fx").exported(model)
        left = constants
        if constants:
            fixed = import_module("alpenglow.frontends.torch.fixed").fixed
            program, left = fixed(program, constants)
        model_of = import_module("alpenglow.frontends.torch.model").model_of
        blaming = import_module("alpenglow.frontends.torch.refusals").blaming
        try:
            with blaming(program.trusted):
                loaded: Graph | StagedModel = model_of(program)
        except AlpenglowError as error:
            raise error.located(file=program.file) from None
        if not shapes and not left:
            return loaded
        if isinstance(loaded, StagedModel):
            what = "shapes" if shapes else f"the shape of the constant '{next(iter(left))}'"
            raise UnsupportedError(
                f"{what} cannot fix dimensions of a program whose graph depends on its data",
                hint="export it with these dimensions",
            )
        bound = bind_shapes(loaded, shapes) if shapes else loaded
        return fix(bound, left) if left else bound
