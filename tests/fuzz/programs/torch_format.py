"""PyTorch as a format: programs are exported or compiled, and eager says what is right."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import AlpenglowError
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

from ..dice import SYMBOLS
from ..elements import Array
from ..judge import Feeds
from ..reference import Reference
from .beside import TIMES, Undefined, apart
from .program import Program
from .torch_writer import GLOBALS, TorchWriter, array_of, tensor_of

torch._logging.set_logs(all=logging.CRITICAL)


WRITES = re.compile(r"[a-z]_\(|\] [-+*]?= |out=")


class Net(nn.Module):
    """A module with the weights of a program; its forward is the function of the program."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__()
        for name, array in weights.items():
            self.register_buffer(name, tensor_of(array))


def module_of(program: Program) -> nn.Module:
    """Return a program as a module."""
    scope: dict[str, Any] = dict(GLOBALS)
    exec(program.source("forward", "self", "self.{}"), scope)
    kind = type("Drawn", (Net,), {"forward": scope["forward"]})
    made: nn.Module = kind(program.weights)
    return made.eval()


class TorchFormat:
    """Programs as modules that `torch.export` traces."""

    name = "pytorch"
    opens = True
    nan = True
    tiny = True

    def session(self) -> AbstractContextManager[None]:
        """Return a context for programs, which need none."""
        return nullcontext()

    def writer(self) -> TorchWriter:
        """Return what writes a new program."""
        return TorchWriter()

    def loaded(self, program: Program, feeds: Feeds, is_open: bool) -> Graph | StagedModel:
        """Import a program as it is exported."""
        text = program.source()
        if ("expand" in text or "broadcast_to" in text) and WRITES.search(text):
            raise Undefined("PyTorch functionalizes a write to an expanded view as x + (new - x)")
        inputs = tuple(tensor_of(feeds[k]) for k in program.inputs)
        shapes = None
        if is_open and program.is_open:
            dims = {n: Dim.DYNAMIC for k, n in SYMBOLS.items()}
            shapes = tuple({i: dims[n] for i, n in enumerate(x.shape) if n in dims} for x in inputs)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exported = torch.export.export(module_of(program), inputs, dynamic_shapes=shapes)
            except Exception as error:
                text = str(error).strip().partition("\n")[0]
                raise Undefined(f"export: {type(error).__name__}: {text[:100]}") from error
            return ag.load(exported)

    def run(self, program: Program, feeds: Feeds) -> dict[str, Array]:
        """Return outputs of eager, and inputs that it wrote."""
        inputs = {k: tensor_of(feeds[k]) for k in program.inputs}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = module_of(program)(*inputs.values())
            except Exception as error:
                raise Undefined(f"eager: {type(error).__name__}") from error
        after = {f"{k}_after": array_of(x) for k, x in inputs.items()}
        return after | {f"output_{i}": array_of(x) for i, x in enumerate(made)}

    def more(
        self, program: Program, references: Mapping[int, Reference], seed: int
    ) -> list[tuple[str, str]]:
        """Judge gradients, or the backend of `torch.compile`, of one program in two."""
        way = np.random.default_rng((seed, 1)).integers(4)
        if 0 not in references or program.is_open or way > 1:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judged = gradients_differ if way else compiled_differs
            what = judged(self, program, references[0])
        return [("gradients" if way else "torch.compile", what)] if what else []


def compiled_differs(format_: TorchFormat, program: Program, reference: Reference) -> str:
    """Return how outputs through `torch.compile` differ from those of eager, strides included."""
    torch._dynamo.reset()
    module = module_of(program)
    compiled = torch.compile(module, backend="alpenglow")
    inputs, others = ([tensor_of(a) for a in program.inputs.values()] for _ in "ab")
    with torch.no_grad():
        try:
            expected = module(*inputs)
        except Exception as error:
            raise Undefined("eager") from error
        made = compiled(*others)
    names = [*(f"{k}_after" for k in program.inputs), *(f"output_{i}" for i in range(len(made)))]
    for name, y, x in zip(names, [*inputs, *expected], [*others, *made], strict=True):
        if y.stride() != x.stride() and y.numel():
            return f"{name}: strides {x.stride()} instead of {y.stride()}"
        if name not in reference.expected:
            what = "" if torch.equal(x, y) or y.isnan().any() else "an input is written"
        else:
            what = apart(reference, name, array_of(x), TIMES)
        if what:
            return f"{name}: {what}"
    return ""


def gradients_differ(format_: TorchFormat, program: Program, reference: Reference) -> str:
    """Return how gradients of our graph differ from those of autograd."""
    inputs = {k: tensor_of(a) for k, a in program.inputs.items()}
    wanted = [k for k, x in inputs.items() if x.dtype in (torch.float32, torch.float64)]
    for k in wanted:
        inputs[k].requires_grad_()
    if not wanted or WRITES.search(program.source()):
        return ""
    try:
        made = module_of(program)(*inputs.values())
    except Exception:
        return ""
    smooth = [i for i, y in enumerate(made) if y.dtype in (torch.float32, torch.float64)
              and y.requires_grad]  # fmt: skip
    if not smooth or made[smooth[-1]].isnan().any():
        return ""
    try:
        theirs = torch.autograd.grad(made[smooth[-1]].sum(), [inputs[k] for k in wanted],
                                     allow_unused=True)  # fmt: skip
    except Exception:
        return ""
    g = format_.loaded(program, program.inputs, False)
    if not isinstance(g, Graph):
        return ""
    y = g.outputs[f"output_{smooth[-1]}"]
    try:
        ours = gradients(g, y, [g.inputs[k] for k in wanted])
    except AlpenglowError:
        return ""
    for name in list(g.outputs):
        del g.outputs[name]
    for k, v in zip(wanted, ours, strict=True):
        g.output(f"d{k}", v)
    beside = Reference(g, reference.feeds)
    for k, x in zip(wanted, theirs, strict=True):
        dx = np.zeros_like(program.inputs[k]) if x is None else array_of(x)
        what = apart(beside, f"d{k}", dx, TIMES)
        if what:
            return f"output {smooth[-1]} by {k}: {what}"
    return ""
