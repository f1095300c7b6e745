"""What an Executable says of itself: a line for `repr`, a table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.words import counted, shown
from alpenglow.ir.describe import bytes_text, html, signature
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact


@dataclass(frozen=True, slots=True)
class Description:
    """The kind of an Executable; its name, machine and threads; what goes in and comes out, None
    where no type is known; and what has been compiled."""

    kind: str
    head: Sequence[str]
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    code: str

    def __str__(self) -> str:
        types = signature(self.inputs, self.outputs)
        return f"{self.kind}({', '.join(self.head)}; {types}; {self.code})"

    def html(self) -> str:
        """Return the same as a table for notebooks."""
        title = f"{self.kind} {', '.join(self.head)}"
        return html(title, self.inputs, self.outputs, [self.code])


def head(name: str, target: Target, threads: int) -> list[str]:
    """Return the name of a model, what it runs on, and on how many threads."""
    return [shown(name), machine(target), counted(threads, "thread")]


def machine(target: Target) -> str:
    """Return a target's name, and behind that of this host which processor it is."""
    return f"{target} ({shown(target.cpu)})" if target.name == "cpu" else str(target)


def code(artifacts: Sequence[Artifact], *, is_open: bool) -> str:
    """Return how much has been compiled; where extents are open, for how many kinds of them."""
    if not artifacts:
        return "nothing compiled yet"
    kernels = len({name for a in artifacts for name in a.objects})
    interpreted = sum(len(a.interpreted()) for a in artifacts)
    text = counted(kernels, "kernel")
    if interpreted:
        text += f", {counted(interpreted, 'instruction')} interpreted"
    if is_open:
        return f"{text} in {counted(len(artifacts), 'compilation')}"
    return f"{text}, arena {bytes_text(artifacts[0].program.arena)}"
