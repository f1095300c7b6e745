"""The options that every command has, and the `Request` that they add up to."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from alpenglow.base.arrays import readable
from alpenglow.base.errors import OptionError
from alpenglow.base.knobs import MOST_THREADS
from alpenglow.base.progress import Progress, silent
from alpenglow.base.sizes import parse_nbytes
from alpenglow.cli import TRACEBACK
from alpenglow.cli.files import refuse_overwriting
from alpenglow.cli.help import Command, names_of
from alpenglow.compiler.options import Options

Numerics = Literal["fast", "strict"]
Precision = Literal["f32", "bf16", "f16"]
Indices = Literal["error", "clamp"]
Activations = Literal["model", "f32", "int8"]
Shapes = dict[str, tuple[int, ...]]
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, on whichever command.

    `shapes` binds extents by input, `extents` by name; `constants` are values of inputs, which are
    none then; `rounding` is that of `load`; `weights` is how much memory those of an archive may
    take; `inputs` says where arrays come from: a .npy file, a .npz file that holds an array of the
    input's name, or "random".  With `trust`, the model may hold code under any name; of a `key` it
    must be a signed archive.
    """

    model: Path
    target: str = "cpu"
    threads: int | None = None
    numerics: Numerics = "fast"
    shapes: Shapes = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    json: bool = False
    precision: Precision = "f32"
    keep: tuple[str, ...] = ()
    indices: Indices = "error"
    activations: Activations = "model"
    trust: bool = False
    key: Path | None = None
    rounding: str | None = None
    memory: str | None = None
    weights: str | None = None
    timeout: float | None = None

    def options(self, progress: Progress = silent, check: bool | None = None) -> Options:
        """Return how to compile."""
        return Options(
            numerics=self.numerics, progress=progress, check=check,
            precision=self.precision, keep=self.keep, indices=self.indices,
            activations=self.activations, memory=_bytes_of(self.memory),
            timeout=self.timeout,
        )  # fmt: skip


UNITS = {"": 1, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600}
"""Seconds in each unit of time."""


def parse_seconds(text: str, what: str) -> float:
    """Return the seconds that a text like 30s or 2min stands for; raise OptionError else."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", text.strip().lower().replace("\u03bc", "µ"))
    if m is None or m[2] not in UNITS:
        raise OptionError(
            f"{what} is '{text}', expected a number with µs, ms, s, min or h: 1.5ms, 30s, 2min"
        )
    return float(m[1]) * UNITS[m[2]]


def _bytes_of(memory: str | None) -> int | None:
    """Return how many bytes --memory says."""
    return None if memory is None else parse_nbytes(memory, "--memory")


def memory_option(function: Function) -> Function:
    """Give a command the option that limits the memory of a call."""
    option = click.option("--memory", metavar="BYTES|200KB|192KiB",
                          help="Limit of the arena: the memory of a call for intermediate values.",
    )  # fmt: skip
    return option(function)


def timeout_option(function: Function) -> Function:
    """Give a command the option that limits the time of a compilation."""
    option = click.option("--timeout", type=click.FloatRange(min=0, min_open=True),
                          metavar="SECONDS",
                          help="Raise an error if compilation takes longer than this number of "
                          "seconds.")  # fmt: skip
    return option(function)


def model_options(function: Function) -> Function:
    """Give a command its MODEL and the common options; it is called with a Request first."""

    @functools.wraps(function)
    def call(model: Path, target: str, threads: int | None, numerics: Numerics,
             precision: Precision, keep: str, indices: Indices, activations: Activations,
             shapes: tuple[str, ...], dim: tuple[str, ...], constants: tuple[str, ...],
             rounding: str | None, as_json: bool, trust: bool, key: Path | None,
             inputs: tuple[str, ...] = (), feeds: Path | None = None,
             **rest: Any) -> Any:  # fmt: skip
        refuse_overwriting(click.get_current_context())
        request = Request(
            seekable(model), target, threads, numerics,
            shapes=parse_shapes(shapes), extents=parse_extents(dim),
            constants=parse_constants(constants),
            inputs=parse_feeds(feeds) | parse_inputs(inputs), json=as_json,
            precision=precision, keep=tuple(n for n in keep.split(",") if n), indices=indices,
            activations=activations, trust=trust,
            key=key, rounding=rounding,
        )  # fmt: skip
        return function(request, **rest)

    decorated: Function = call
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def seekable(model: Path) -> Path:
    """Return a file that can be read twice: a copy of what comes through a pipe, or by ``-``.

    The copy is gone when the command ends.
    """
    piped = str(model) == "-"
    if not piped and (not model.exists() or model.is_file() or model.is_dir()):
        return model
    context = click.get_current_context()
    folder = context.with_resource(tempfile.TemporaryDirectory(prefix="alpenglow-"))
    path = Path(folder, "piped.onnx")
    with path.open("wb") as copy:
        if piped:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with model.open("rb") as file:
                shutil.copyfileobj(file, copy)
    return path


def _note_traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[TRACEBACK] = value


_ARGUMENT: tuple[Callable[[Function], Function], ...] = (
    click.argument("model", type=click.Path(path_type=Path, allow_dash=True)),
)  # fmt: skip

_MODEL: tuple[Callable[[Function], Function], ...] = (
    click.option("--shapes", multiple=True, metavar="NAME=1x3x224x224[,…]",
                 help="Fix the dynamic dimensions of inputs, by input name."),
    click.option("--dim", multiple=True, metavar="N=1[,…]",
                 help="Fix a dynamic dimension by its own name, in all inputs."),
    click.option("--constants", multiple=True, metavar="NAME=VALUE",
                 help="Replace an input by a constant: true, 3, 0.5, [1,2] or FILE.npy."),
    click.option("--rounding", metavar="xnnpack|reference",
                 help="How to round integers of a quantized TFLite model: as LiteRT with XNNPACK, "
                 "or as the reference kernels (firmware).  [default: xnnpack]"),
    click.option("--trust", is_flag=True,
                 help="Take the format of MODEL from its content, also of machine code, whatever "
                 "the name of its file ends in."),
    click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="PUBLIC.pem",
                 help="Accept only an archive that is signed with this key (see `alpenglow "
                 "sign`)."),
)  # fmt: skip

_COMPILE: tuple[Callable[[Function], Function], ...] = (
    click.option("--target", default="cpu", show_default=True,
                 help="The backend and CPU level to compile for: cpu (this CPU), x86-64-v3, "
                 "opencl:0, interpreter, …"),
    click.option("--threads", type=click.IntRange(1, MOST_THREADS),
                 help="Size of the thread pool.  [default: the CPUs that this process may use]"),
    click.option("--numerics", type=click.Choice(["fast", "strict"]), default="fast",
                 show_default=True,
                 help="fast may change the order of floating-point operations; strict keeps it."),
    click.option("--precision", type=click.Choice(["f32", "bf16", "f16"]), default="f32",
                 show_default=True,
                 help="The dtype of operands of convolutions and matmuls; accumulators are f32."),
    click.option("--keep", default="", metavar="NAME[,…]",
                 help="Mixed precision: names of values or operators (conv, mat_mul) that stay in "
                 "f32."),
    click.option("--indices", type=click.Choice(["error", "clamp"]), default="error",
                 show_default=True,
                 help="What an index out of range does: raise an error, or read the nearest "
                 "element."),
    click.option("--activations", type=click.Choice(["model", "f32", "int8"]), default="model",
                 show_default=True,
                 help="The dtype of activations that are multiplied by low-bit weights; `model` "
                 "takes int8 if the model allows it."),
)  # fmt: skip

_OUTPUT: tuple[Callable[[Function], Function], ...] = (
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--traceback", is_flag=True, expose_value=False, callback=_note_traceback,
                 help="If an error occurs, print the traceback too."),
)  # fmt: skip

_OPTIONS = (*_ARGUMENT, *_MODEL, *_COMPILE, *_OUTPUT)

_INPUTS: tuple[Callable[[Function], Function], ...] = (
    click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy|random",
                 help="The data of an input.  random (the default) is the same in every run."),
    click.option("--feeds", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.npz",
                 help="A file with an array for each input, under its name; --input takes "
                 "precedence."),
)  # fmt: skip

Command.shared = {
    "Model and inputs": names_of((*_MODEL, *_INPUTS)),
    "Compilation": names_of(_COMPILE),
    "Output": names_of(_OUTPUT),
}


def input_option(function: Function) -> Function:
    """Give a command the options that say what to feed."""
    for option in reversed(_INPUTS):
        function = option(function)
    return function


def parse_shapes(texts: tuple[str, ...]) -> Shapes:
    """Read NAME=1x3x224x224, several separated by commas; NAME= is a scalar.

    Extents may be joined by commas instead, in brackets or not, as other tools have them.
    """
    shapes: Shapes = {}
    joined = tuple(_JOINED.sub(lambda m: m[0].strip("[]").replace(",", "x"), t) for t in texts)
    for name, shape in _pairs("--shapes", joined, "NAME=1x3x224x224"):
        if not re.fullmatch(r"(\d+(x\d+)*)?", shape):
            raise OptionError(
                f"--shapes {name}={shape}: expected integers joined by x, like 1x3x8x8"
            )
        shapes[name] = tuple(int(d) for d in shape.split("x") if d)
    return shapes


_JOINED = re.compile(r"(?<==)(\[\d+(,\d+)*\]|\d+(,\d+)+)(?=,|$)")
"""Extents joined by commas; what comes after a comma and is no number is the next name."""


def parse_extents(texts: tuple[str, ...]) -> dict[str, int]:
    """Read N=1, several separated by commas."""
    extents: dict[str, int] = {}
    for name, extent in _pairs("--dim", texts, "N=1"):
        if not extent.isdecimal():
            raise OptionError(f"--dim {name}={extent}: expected a number")
        extents[name] = int(extent)
    return extents


def parse_constants(texts: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE: true, false, a number, a list of such in brackets, or FILE.npy."""
    constants: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise OptionError(f"--constants {text}: expected NAME=VALUE")
        if name in constants:
            raise OptionError(f"--constants names '{name}' twice, expected once")
        try:
            with readable():
                constants[name] = (
                    np.load(value) if value.endswith(".npy")
                    else json.loads(value.lower() if value in ("True", "False") else value)
                )  # fmt: skip
        except (OSError, ValueError) as error:
            raise OptionError(
                f"--constants {text}: expected true, false, a number, a list as [1,2], or a "
                f".npy file: {error}"
            ) from None
    return constants


def parse_inputs(texts: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=FILE.npy or NAME=random; a file's name may hold commas."""
    inputs: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not (name and equals and source):
            raise OptionError(f"--input {text}: expected NAME=FILE.npy or NAME=random")
        inputs[name] = source
    return inputs


def parse_feeds(path: Path | None) -> dict[str, str]:
    """Return the file for the name of each array that is in it."""
    if path is None:
        return {}
    try:
        with readable(), np.load(path) as arrays:
            return dict.fromkeys(arrays.files, str(path))
    except (OSError, ValueError) as error:
        raise OptionError(f"--feeds is {path}, expected a .npz file: {error}") from None


def _pairs(flag: str, texts: tuple[str, ...], form: str) -> list[tuple[str, str]]:
    values: dict[str, str] = {}
    for text in (part for t in texts for part in t.split(",")):
        name, equals, value = text.strip().rpartition("=")
        if not (name and equals):
            raise OptionError(f"{flag} {text}: expected {form}")
        if name in values:
            raise OptionError(f"{flag} names '{name}' twice, expected once")
        values[name] = value
    return list(values.items())
