"""Whether the arguments that a program was traced with were tensors of their own.

`torch.export.export` takes arguments that are one tensor for one, and an argument that is a
parameter for the parameter: what it traced reads only one of them, whatever comes in the others.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alpenglow.base.errors import ModelError

PARAMETER = "torch._utils _rebuild_parameter"
"""What a pickle calls to make one; where it has attributes, "_with_state" follows."""


def check_given(tensors: Sequence[Any], state: Mapping[str, Any]) -> None:
    """Raise ModelError where two of the example inputs, or one and a tensor of the module, are one.

    Both are tensors of PyTorch's.
    """
    names = {id(x): name for name, x in state.items()}
    for x in tensors:
        if id(x) in names:
            raise _refused(f"an input was '{names[id(x)]}' of the module")
    if len({id(x) for x in tensors}) < len(tensors):
        raise _refused("inputs were one tensor")


def check_stored(samples: bytes, tensors: int, unread: Iterable[str]) -> None:
    """The same for the pickle of the example inputs in a ``.pt2`` file.

    `tensors` counts the inputs that are tensors, `unread` names what is stored of the module and
    read nowhere.  The pickle is only listed: its instructions are read, and none is carried out.
    It does not show that an input was a buffer.
    """
    try:
        steps = [(op.name, argument) for op, argument, _ in pickletools.genops(samples)]
    except ValueError as error:
        raise ModelError(f"the example inputs are damaged: {error}, expected a pickle") from error
    stored = sum(step == "BINPERSID" for step, _ in steps)  # each tensor names where it is stored
    if 0 < stored < tensors:
        raise _refused(f"{tensors} inputs were {stored} tensors")
    made = {str(argument) for step, argument in steps if step == "GLOBAL"}
    if any(m.startswith(PARAMETER) for m in made) and (lost := sorted(unread)):
        raise _refused(f"an input was a parameter, and '{lost[0]}' is read nowhere")


def _refused(seen: str) -> ModelError:
    return ModelError(
        f"{seen} when this program was exported, expected distinct tensors: torch.export reads "
        "only one of several equal inputs",
        hint="export with x.detach().clone() for a tensor that is passed twice",
    )
