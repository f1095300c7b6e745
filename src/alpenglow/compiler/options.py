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
    """Collect the options of `compile`, `bundle` and `place`.

    Args:
        numerics: "fast" lets the compiler change how results are rounded, as docs/architecture.md
            lists; "strict" keeps each operation as written.
        passes: passes of the caller, each inserted behind the pass that its `after` names.
        after: a function that is called with each pass and its result.
        progress: a function that is called during long work with the name of the current task, the
            number of finished steps and the number of all steps.
        check: True validates the result of every pass; None: as ALPENGLOW_CHECK says.
        tuning: the record that `alpenglow tune` measured; None: the file that ALPENGLOW_TUNING
            names.  It changes speed, and how convolutions are rounded that use Winograd's method.
        precision: the element type of the operands of convolutions and matrix multiplications:
            "f32", "bf16" or "f16".  Accumulators are f32.
        keep: results and operators, by name, that stay in f32.
        indices: the effect of an index out of range, if the model defines none: "error" raises
            FeedError in the call, "clamp" uses the nearest valid index.
        activations: the element type of activations in matrix multiplications with low-bit weights:
            "model" (f32, or int8 if the model allows it, as `accuracy_level` 4 of MatMulNBits
            does), "f32", or "int8" if the target multiplies int8, with a scale for each group of
            neighbours, except for names in `keep`.
        memory: the limit of the memory for intermediate results: bytes, or a text like "200KB" or
            "192KiB"; None: no limit.  It excludes inputs, outputs, state and weights.
        timeout: the limit of import and compilation in seconds; None: no limit.  It is checked
            after each pass, node and kernel.

    Raises:
        OptionError: if an option has a wrong value.

    Example:
        >>> options = ag.Options(numerics="strict", memory="64KB")
        >>> exe = ag.compile("model.onnx", shapes={"x": (2, 8)}, options=options)
        >>> options.memory_nbytes
        64000
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
        """The memory limit in bytes; None if there is none."""
        assert not isinstance(self.memory, str), "texts became numbers"
        return self.memory

    @property
    def record(self) -> Record:
        """The tuning record in use; an empty one, with a warning, if its file is damaged."""
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
