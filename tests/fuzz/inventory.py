"""What the recipes have never drawn, of all that ONNX's and ONNX Runtime's schemas allow.

    python -m tests.fuzz.inventory --count 3000

drafts the models of so many seeds, runs none of them, and lists for each form of an operator what
no model had: the form itself, attributes that were never written or never left out, element types,
operands that were always there or never, results that nobody asked for, the same operand twice.
`--op NAME` shows what was drawn of one operator.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as runtime
from onnx import helper

from alpenglow.frontends.onnx.converters import find
from alpenglow.frontends.onnx.hosted import find_hosted

from .draft import Draft, every
from .elements import DTYPES
from .models import draft

Form = tuple[str, str, int]
"""Domain, operator, and the opset since which it has been so."""

MICROSOFT = "com.microsoft"

OUT_OF_REACH = {
    "ImageDecoder": "reads files of pictures: an array of bytes that is one is no random array",
    "ai.onnx.preview.training:Gradient": "is no function of its operands, but of the graph",
}
"""Operators that have no recipe, and why."""


@dataclass
class Drawn:
    """What models had of one form of an operator."""

    nodes: int = 0
    written: Counter[str] = field(default_factory=Counter)
    values: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    types: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ranks: Counter[int] = field(default_factory=Counter)
    given: Counter[int] = field(default_factory=Counter)
    results: Counter[int] = field(default_factory=Counter)
    twice: int = 0
    views: int = 0
    """Nodes that read a result of an operator that only moves elements."""


MOVING = {"Expand", "Transpose", "Slice", "Split", "Reshape", "Squeeze", "Unsqueeze", "Gather",
          "Concat", "Flatten", "Tile"}  # fmt: skip


class Inventory:
    """Counts of what drafts have."""

    def __init__(self) -> None:
        self.forms: dict[Form, Drawn] = defaultdict(Drawn)
        self.schemas = {(s.domain, s.name, s.since_version): s for s in _schemas()}

    def add(self, d: Draft) -> None:
        """Count the nodes of a draft, those of bodies too."""
        nodes = list(every(d.nodes))
        makers = {o: n.op_type for n in nodes for o in n.output}
        for n in nodes:
            self._node(d, n, makers)

    def _node(self, d: Draft, n: onnx.NodeProto, makers: dict[str, str]) -> None:
        drawn = self.forms[self._form(d, n)]
        drawn.nodes += 1
        for a in n.attribute:
            drawn.written[a.name] += 1
            drawn.values[a.name].update(_classes(helper.get_attribute_value(a)))
        for i, name in enumerate(n.input):
            if name:
                drawn.given[i] += 1
                v = d.types.get(name)
                if v is not None:
                    drawn.types[i][v.dtype] += 1
                    if not i:
                        drawn.ranks[v.rank] += 1
        drawn.results.update(i for i, name in enumerate(n.output) if name)
        named = [name for name in n.input if name]
        drawn.twice += len(set(named)) < len(named)
        drawn.views += any(makers.get(name) in MOVING for name in named)

    def _form(self, d: Draft, n: onnx.NodeProto) -> Form:
        version = d.opset if not n.domain else d.versions.get(n.domain, 1)
        since = [s for dom, op, s in self.schemas if (dom, op) == (n.domain, n.op_type)
                 and s <= version]  # fmt: skip
        return n.domain, n.op_type, max(since, default=1)

    # ── what is missing ──

    def missing(self) -> Iterator[tuple[str, str]]:
        """Yield what no model had: the form, and what of it."""
        for form, schema in sorted(self.schemas.items()):
            if not _imported(form):
                continue
            drawn, name = self.forms.get(form), spelled(form)
            if spelled(form).partition(" ")[0] in OUT_OF_REACH:
                continue
            if drawn is None:
                yield name, "never"
                continue
            yield from ((name, what) for what in _gaps(schema, drawn))


def _gaps(schema: Any, drawn: Drawn) -> Iterator[str]:
    for name, a in sorted(schema.attributes.items()):
        if not drawn.written[name]:
            yield f"attribute {name} never written"
        elif not a.required and drawn.written[name] == drawn.nodes:
            yield f"attribute {name} always written"
    for i, p in enumerate(schema.inputs):
        option = str(p.option).rpartition(".")[2]
        if option == "Optional" and not drawn.given[i]:
            yield f"operand {i} ({p.name}) never given"
        elif option == "Optional" and drawn.given[i] == drawn.nodes:
            yield f"operand {i} ({p.name}) always given"
        kinds = {t[7:-1] for t in p.types if t.startswith("tensor(")} & DTYPES.keys()
        left = sorted(kinds - set(drawn.types[i]))
        if left and drawn.given[i]:
            yield f"operand {i} ({p.name}) never {' '.join(left)}"
    for i, p in enumerate(schema.outputs):
        if str(p.option).rpartition(".")[2] == "Optional" and not drawn.results[i]:
            yield f"result {i} ({p.name}) never asked for"
    several = schema.max_input > 1
    if several and not drawn.twice and drawn.nodes > 30:
        yield "never one operand twice"


def _classes(value: Any) -> Iterable[str]:
    """Return what kind of value an attribute has."""
    if isinstance(value, bytes):
        return [value.decode()]
    if isinstance(value, int | float):
        return [_class(value)]
    if isinstance(value, list | tuple):
        return [f"{len(value)} long", *(_classes(v)[0] for v in value[:8])]  # type: ignore[index]
    return [type(value).__name__]


def _class(n: float) -> str:
    if n in (-1, 0, 1, 2):
        return str(n)
    return "negative" if n < 0 else "fraction" if n < 1 else "large" if n > 32 else "more"


def _schemas() -> Iterator[Any]:
    yield from onnx.defs.get_all_schemas_with_history()

    yield from (s for s in runtime.get_all_operator_schema() if s.domain == MICROSOFT)


def _imported(form: Form) -> bool:
    """Return whether the importer has a converter, or a hosted form, of an operator."""
    domain, op, since = form
    return find(domain, op, since) is not None or find_hosted(domain, op, since) is not None


def spelled(form: Form) -> str:
    domain, op, since = form
    return f"{domain}:{op} {since}" if domain else f"{op} {since}"


def taken(seeds: Iterable[int]) -> Inventory:
    """Return the inventory of the models of some seeds."""
    found = Inventory()
    for seed in seeds:
        found.add(draft(seed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=3000, help="how many models")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--op", help="show what was drawn of one operator")
    asked = parser.parse_args()
    found = taken(range(asked.seed, asked.seed + asked.count))
    if asked.op:
        show(found, asked.op)
        return
    gaps = list(found.missing())
    for name, what in gaps:
        print(f"{name:45} {what}")
    forms = [f for f in found.schemas if _imported(f)]
    least = Counter(op for (_, op, _), drawn in found.forms.items() for _ in range(drawn.nodes))
    print(f"{len(found.forms)} forms drawn, of {len(forms)} that are imported; {len(gaps)} gaps; "
          f"least often: {least.most_common()[-12:]}", file=sys.stderr)  # fmt: skip


def show(found: Inventory, op: str) -> None:
    """Print what was drawn of each form of an operator."""
    for form, drawn in sorted(found.forms.items()):
        if form[1] != op:
            continue
        print(f"{spelled(form)}: {drawn.nodes} nodes, ranks {dict(sorted(drawn.ranks.items()))}")
        print(f"  {drawn.twice} read one operand twice, {drawn.views} a view")
        for name, values in sorted(drawn.values.items()):
            print(f"  {name}: written {drawn.written[name]} times, {dict(values)}")
        for i, kinds in sorted(drawn.types.items()):
            print(f"  operand {i}: given {drawn.given[i]} times, {dict(kinds)}")


if __name__ == "__main__":
    main()
