"""What a traced graph writes into its inputs, told as results of it.

AOTAutograd makes a graph functional and puts what it writes at its end, a call of ``copy_`` for
each input.  All of these are of values from before the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Writes:
    """What of the results of a graph is written into its inputs, all by place.

    `into` are the inputs that the last results are written into, in order; `returned` says which
    inputs are returned as they are then, by where in what is returned.
    """

    into: tuple[int, ...] = ()
    returned: Mapping[int, int] = field(default_factory=dict)

    def done(self, made: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Write what was made into what was given, and return what the graph returned.

        None stands for a result that has been written.
        """
        count = len(made) - len(self.into)
        arguments = [given[i] for i in self.into]
        made = _apart(made, arguments)
        with torch.no_grad():
            for x, y in zip(arguments, made[count:], strict=True):
                if y is not None:
                    x.copy_(y)
        if not self.returned:
            return list(made[:count])
        others = iter(made[:count])
        return [given[self.returned[at]] if at in self.returned else next(others)
                for at in range(count + len(self.returned))]  # fmt: skip


def _apart(made: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Return what was made in memory that no argument has.

    What is read later is what was there before: another argument is written with it, or it is kept
    for the backward pass, from which AOTAutograd may compute again what it was.
    """
    written = {x.untyped_storage().data_ptr() for x in arguments}
    return [
        y.clone()
        if isinstance(y, torch.Tensor) and y.untyped_storage().data_ptr() in written
        else y
        for y in made
    ]


def take_out(module: Any) -> Writes:
    """Take the calls that write inputs out of a graph of AOTAutograd's.

    What they write are outputs then, behind the others.
    """
    graph = module.graph
    places = {n: i for i, n in enumerate(n for n in graph.nodes if n.op == "placeholder")}
    calls = [n for n in graph.nodes
             if n.target is torch.ops.aten.copy_.default and n.args[0] in places]  # fmt: skip
    if not calls:
        return Writes()
    output = graph.output_node()
    inputs = {call: places[call.args[0]] for call in calls}
    returned = {at: inputs[x] for at, x in enumerate(output.args[0]) if x in inputs}
    others = [x for at, x in enumerate(output.args[0]) if at not in returned]
    output.args = ((*others, *(call.args[1] for call in calls)),)
    for call in reversed(calls):
        call.replace_all_uses_with(call.args[1])
        graph.erase_node(call)
    return Writes(tuple(inputs.values()), returned)
