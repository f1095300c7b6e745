"""What `torch.compile` would make of a module: what is compiled, and what is not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from alpenglow.base.words import counted
from alpenglow.frontends.torch.refusals import Refusal
from alpenglow.torch.backend import backend, recording


@dataclass(frozen=True, slots=True)
class Explanation:
    """The graphs that a module was traced into, and all calls that would run in eager.

    `graphs` counts them, `compiled` their calls that are compiled, in `parts` pieces; `refusals`
    are the others; `breaks` are the reasons why Dynamo ended a graph, each with the place in the
    code.
    """

    graphs: int
    parts: int
    compiled: int
    refusals: tuple[Refusal, ...]
    breaks: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{counted(self.graphs, 'graph')}: {counted(self.compiled, 'call')} compiled in "
            f"{counted(self.parts, 'part')}, {counted(len(self.refusals), 'call')} in eager, "
            f"{counted(len(self.breaks), 'graph break')}"
        ]
        lines += [f"  eager: {r.call.target} at {r.call.source or '?'}: {r.reason}"
                  for r in self.refusals]  # fmt: skip
        lines += [f"  break: {reason}" for reason in self.breaks]
        return "\n".join(lines)


def explain(module: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Call a module once through `torch.compile`, and return what became of it.

    Dynamo forgets what it compiled before and afterwards.  Raises what the module raises.
    """
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    before = dict(counters["graph_break"])
    try:
        with recording() as record:
            torch.compile(module, backend=backend)(*args, **kwargs)
        after = dict(counters["graph_break"])
    finally:
        torch._dynamo.reset()
    plans = [plan for _, plan in record.plans]
    breaks = tuple(" ".join(reason.split()) for reason, number in after.items()
                   for _ in range(number - before.get(reason, 0)))  # fmt: skip
    return Explanation(
        graphs=len(plans),
        parts=sum(sum(type(s).__name__ == "Part" for s in p.steps) for p in plans),
        compiled=sum(p.compiled for p in plans),
        refusals=tuple(r for p in plans for r in p.refusals),
        breaks=breaks,
    )
