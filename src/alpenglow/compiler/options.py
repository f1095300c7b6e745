"""What a caller can choose about compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from alpenglow.base import knobs
from alpenglow.base.errors import OptionError, ParseError
from alpenglow.base.progress import Progress, silent
from alpenglow.base.sizes import parse_nbytes
from alpenglow.passes.choices import Record
from alpenglow.passes.keep import PRECISIONS
from alpenglow.passes.table import Pass


class TuningWarning(UserWarning):
    """The tuning record cannot be read; code is as fast as without one."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `compile`.

    `numerics` is "fast" (results may be rounded differently, as docs/architecture.md lists; the
    default) or "strict" (operations as written).  `passes` are the caller's own, each inserted
    where its `after` says.  `after` is called with each pass and what it made.  `progress` is
    called on long work.  `check` validates every pass (default: what ALPENGLOW_CHECK says).
    `tuning` is what `alpenglow tune` measured (default: the record that ALPENGLOW_TUNING names,
    see `base.knobs`); it changes speed, and the rounding of convolutions that go Winograd's way
    or do not.
    `indices` says what becomes of indices out of range, where a model does not allow any: "error"
    (a call raises FeedError; the default) or "clamp" (the nearest that there is is used).
    `precision` is what convolutions and matrix products take: "f32" (the default), "bf16" or
    "f16", with sums in f32; those that `keep` names, by the name of a result or
    of an operator, stay in f32.
    `activations` are what products by weights of few bits take: "model" (f32, or 8 bits where the
    model allows these, as accuracy_level 4 of MatMulNBits does; the default), "f32" whatever it
    allows, or "int8": where the target multiplies bytes, all but those that `keep` names have 8
    bits, and a scale for each group of neighbours.
    `memory` limits what a call takes beside its inputs, outputs, state and weights: a number of
    bytes, or a text like "200KB" or "192KiB".  What is planned keeps to it, or compiling raises
    MemoryLimitError (docs/memory.md).
    `timeout` limits a compilation, with the import of the model, to a number of seconds.  Then it
    raises CompileTimeoutError, once the current pass, node or kernel is done (default: no limit).
    """

    numerics: Literal["fast", "strict"] = "fast"
    passes: tuple[Pass, ...] = ()
    after: Callable[[Pass, Any], None] | None = None
    progress: Progress = silent
    check: bool | None = None
    tuning: Record | None = None
    precision: Literal["f32", "bf16", "f16"] = "f32"
    keep: tuple[str, ...] = ()
    indices: Literal["error", "clamp"] = "error"
    activations: Literal["model", "f32", "int8"] = "model"
    memory: int | str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.numerics not in ("fast", "strict"):
            raise OptionError(f"numerics is {self.numerics!r}, expected 'fast' or 'strict'")
        if self.indices not in ("error", "clamp"):
            raise OptionError(f"indices is {self.indices!r}, expected 'error' or 'clamp'")
        if self.activations not in ("model", "f32", "int8"):
            raise OptionError(
                f"activations is {self.activations!r}, expected 'model', 'f32' or 'int8'"
            )
        if self.memory is not None:
            object.__setattr__(self, "memory", parse_nbytes(self.memory, "memory"))
        if self.timeout is not None and not _is_time(self.timeout):
            raise OptionError(f"timeout is {self.timeout!r}, expected seconds above 0, or None")
        if not isinstance(self.passes, tuple | list):
            raise OptionError(f"passes is {self.passes!r}, expected a tuple of Pass(…)")
        for p in self.passes:
            if not isinstance(p, Pass):
                raise OptionError(
                    f"passes holds {p!r}, expected Pass(…)",
                    hint="Pass('NAME', function, after='fuse')",
                )
        for name in ("progress", "after"):
            hook = getattr(self, name)
            if not (callable(hook) or (name == "after" and hook is None)):
                raise OptionError(f"{name} is {hook!r}, expected a function")
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise OptionError(f"precision is {self.precision!r}, expected one of {known}")

    @property
    def memory_nbytes(self) -> int | None:
        """The limit in bytes; None if there is none."""
        assert not isinstance(self.memory, str), "texts became numbers"
        return self.memory

    @property
    def record(self) -> Record:
        """The tuning record that counts; where it is damaged, none, and a warning says so."""
        if self.tuning is not None:
            return self.tuning
        path = knobs.tuning_file()
        if path is None or not path.exists():
            return Record()
        try:
            return Record.read(path)
        except ParseError as error:
            warnings.warn(f"the tuning record is ignored: {error}", TuningWarning, stacklevel=2)
            return Record()


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
