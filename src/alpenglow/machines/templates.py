"""Tuned kernels of a machine: a table of templates by the operator that each implements.

A template stands beside its operator in a file of its own and says there for which instructions it
is; all others are left to loop forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.loops.instruction import Frame
from alpenglow.program.instr import Anchor, Instr

Build = Callable[[Frame, Any, Target], None]
"""Builds the kernel of an instruction around an operator."""

Fits = Callable[[Any, Anchor, Instr, Target], bool]
"""Whether a template implements an operator as it stands in an instruction."""

B = TypeVar("B", bound=Build)


def always(op: Op, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return True: the template implements all of its operator."""
    return True


@dataclass(frozen=True, slots=True)
class Template:
    """A tuned kernel, and which instructions it is for."""

    build: Build
    fits: Fits


class Templates:
    """The templates of a machine."""

    def __init__(self) -> None:
        self._of: dict[type[Op], list[Template]] = {}

    def on(self, cls: type[Op], attributes: str = "", fits: Fits = always) -> Callable[[B], B]:
        """Register what implements an operator with these attributes, where it `fits`.

        Who gives an operator another attribute has to look at its templates before anything runs.
        """

        def register(build: B) -> B:
            differ = {f.name for f in fields(cls)} ^ set(attributes.split())  # type: ignore[arg-type]
            assert not differ, f"{build.__name__} and {cls.__name__} differ in {differ}"
            before = self._of.setdefault(cls, [])
            fitting = [t.build.__name__ for t in before if t.fits is always]
            assert not fitting, f"{build.__name__} is never chosen, since {fitting} always fit"
            before.append(Template(build, fits))
            return build

        return register

    def __contains__(self, cls: object) -> bool:
        return cls in self._of

    def choose(self, anchor: Anchor | None, instr: Instr, target: Target) -> Template | None:
        """Return the first template that fits an instruction; None if it is left to loops."""
        if anchor is None:
            return None
        candidates = self._of.get(type(anchor.op), ())
        return next((t for t in candidates if t.fits(anchor.op, anchor, instr, target)), None)
