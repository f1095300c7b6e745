"""What is wrong with a model, if anything: it is compiled, run, and its results are compared."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from alpenglow.compiler import Options
from alpenglow.debug import peer
from alpenglow.debug.compare import error
from alpenglow.debug.probe import Lost, Probe
from alpenglow.driver.compile import compile
from alpenglow.evaluate import evaluate
from alpenglow.frontends import load
from alpenglow.frontends.onnx import cut
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

Kind = Literal["error", "crash", "hang", "differs"]
Check = Literal["error", "interpreter", "onnxruntime"]
CHECKS: tuple[Check, ...] = ("error", "interpreter", "onnxruntime")
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Failure:
    """A way to fail; two are the same if kind and `what` are: the message may differ.

    `what` is the class of an error and the function that raised it, how a process ended, or what
    results differ from.
    """

    kind: Kind
    what: str
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True)
class Trial:
    """How a model is tried: what it is compiled for, and what counts as a failure."""

    target: str = "cpu"
    numerics: Literal["fast", "strict"] = "fast"
    tolerance: float = 1e-4
    checks: tuple[Check, ...] = CHECKS


def examined(
    trial: Trial, model: bytes, feeds: Mapping[str, Array], probe: Probe
) -> Failure | None:
    """Try a serialised model in the process of `probe`; return how it fails, if it does."""
    answer = probe(examine, trial, model, dict(feeds))
    if isinstance(answer, Lost):
        return Failure(answer.kind, answer.how)
    assert answer is None or isinstance(answer, Failure)
    return answer


def examine(trial: Trial, model: bytes, feeds: Mapping[str, Array]) -> Failure | None:
    """Try a serialised model in this process; return how it fails, None if it does not."""
    # Whatever is raised is what is looked for, so everything is caught.
    try:
        with np.errstate(all="ignore"):
            return _compared(trial, model, feeds)
    except Exception as raised:
        if "error" not in trial.checks:
            return None
        return Failure("error", place(raised), str(raised).partition("\n")[0])


def place(raised: BaseException) -> str:
    """Return the class of an exception and the innermost function of this package it went through.

    Messages name nodes and shapes, which change while a model shrinks; this does not.
    """
    frames = traceback.extract_tb(raised.__traceback__)
    ours = [f for f in frames if Path(f.filename).is_relative_to(PACKAGE)]
    if not ours:
        return type(raised).__name__
    file = Path(ours[-1].filename).relative_to(PACKAGE).with_suffix("").as_posix()
    return f"{type(raised).__name__} in {file}.{ours[-1].name}"


def _compared(trial: Trial, model: bytes, feeds: Mapping[str, Array]) -> Failure | None:
    shapes = {name: array.shape for name, array in feeds.items()}
    exe = compile(model, trial.target, shapes=shapes, options=Options(numerics=trial.numerics))
    actual = exe.run(feeds)
    if "interpreter" in trial.checks:
        g = load(model, shapes)
        if isinstance(g, Graph):
            expected = evaluate(g, feeds)
        else:
            expected = compile(g, "interpreter").run(feeds)
        if (failure := _different("the interpreter", expected, actual, trial)) is not None:
            return failure
    if "onnxruntime" in trial.checks and peer.installed():
        return _different("ONNX Runtime", _peers(model, feeds), actual, trial)
    return None


def _different(
    whom: str, expected: Mapping[str, Array], actual: Mapping[str, Array], trial: Trial
) -> Failure | None:
    for name in expected:
        apart = error(expected[name], actual[name])
        if not apart <= trial.tolerance:
            return Failure("differs", whom, f"output '{name}', error {apart:.1e}")
    return None


def _peers(model: bytes, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return what ONNX Runtime makes of a model; nothing if it does not take it."""
    # It refuses models and feeds with exceptions that have no common root.
    try:
        outputs = peer.session(cut.annotated(model), 1).run(feeds)
    except Exception:
        return {}
    return {name: array for name, array in outputs.items() if isinstance(array, np.ndarray)}
