"""Choose among recorded calls of PyTorch's operators, and write them as goldens; without PyTorch.

    python -m tests.frontends.torch.merge FILES
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.frontends.goldens import write
from tests.frontends.torch.calls import Recorded, graph_of_call, read_call, shown

from alpenglow.frontends.torch import converters
from alpenglow.ir.types import TensorType

MOST = 8
"""So many calls of an operator are kept."""

Arguments = Mapping[str, Any]


def merge(files: Sequence[Path]) -> None:
    """Write goldens of the calls in files: of each operator the calls that differ most."""
    by_target: dict[str, dict[str, Recorded]] = defaultdict(dict)
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            call = read_call(line)
            by_target[call.target][line] = call
    by_module: dict[str, list[Recorded]] = defaultdict(list)
    for target, calls in sorted(by_target.items()):
        arguments = {line: call.arguments for line, call in calls.items()}
        by_module[module_of(target)] += [calls[line] for line in spread(arguments, MOST)]
    for module, listed in sorted(by_module.items()):
        write("torch", module, [(str(c), graph_of_call(c)) for c in listed])
    for target in sorted(set(converters.supported()) - by_target.keys()):
        print(f"no call of {target}", flush=True)
    print(f"{sum(map(len, by_module.values()))} calls of {len(by_target)} operators")


def features(arguments: Arguments) -> set[Any]:
    """Return what tells calls apart: values of attributes, by themselves and in pairs, and types.

    Which arguments are left to their defaults counts, too.  Of calls on tensors without elements
    nothing else does, for their graphs are short.
    """
    if any(isinstance(v, TensorType) and 0 in v.shape for v in arguments.values()):
        return {"empty"}
    found: set[Any] = {frozenset(arguments)}
    values: list[Any] = []
    for name, value in arguments.items():
        if isinstance(value, TensorType):
            found |= {(name, value.dtype), (name, "rank", value.rank)}
        else:
            values.append((name, shown(value)))
    return found | {*values, *combinations(values, 2)}


def spread(calls: Mapping[str, Arguments], most: int) -> list[str]:
    """Return the names of calls of an operator, first those with the most that no other has."""
    rest = {text: features(arguments) for text, arguments in calls.items()}
    seen: set[Any] = set()
    chosen: list[str] = []
    while rest and len(chosen) < most:
        text = max(rest, key=lambda t: (len(rest[t] - seen), -len(t), t))
        new = rest.pop(text) - seen
        if not new:
            break
        seen |= new
        chosen.append(text)
    return chosen


def module_of(target: str) -> str:
    """Return the name of the module that has the converter of an operator."""
    entry = converters.find(target)
    assert entry is not None
    return entry.convert.__module__.rpartition(".")[2].removeprefix("convert_")


if __name__ == "__main__":
    merge([Path(file) for file in sys.argv[1:]])
