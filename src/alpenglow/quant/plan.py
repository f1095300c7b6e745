"""The plan: which tensors are stored in few bits and how, which layers are not, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.ir.graph import Graph, Node, Value, require_graph
from alpenglow.ir.misuse import told_of
from alpenglow.ir.op import Control, find_operator
from alpenglow.ir.region import deep, taken_in
from alpenglow.ir.staged import StagedModel, refuse_staged
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.quant.activations import Activation, Activations
from alpenglow.quant.constants import Stored, bias, weight, weight_alone
from alpenglow.quant.layers import HEAVY, ConstantOrigin, Layer, layer, varying
from alpenglow.quant.naming import names
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.profile import Profile

INSIDE = "it is inside of a loop or a branch, where training does not round"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a layer: quantized, or `why` not."""

    name: str
    node: Node
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All that `convert` needs to write the graph, and what a report tells of it.

    `regions` has the plans of the regions of control flow, each of which is quantized as a graph of
    its own whose inputs and outputs stay floats; `decisions` are of layers there, too.
    """

    graph: Graph
    options: QuantOptions
    decisions: tuple[Decision, ...]
    activations: tuple[Activation, ...]
    constants: tuple[Stored, ...]
    regions: Mapping[Node, tuple[Plan, ...]] = field(default_factory=dict)

    @property
    def stores(self) -> bool:
        """True if anything is stored in few bits, in regions too."""
        inner = (p for plans in self.regions.values() for p in plans)
        return bool(self.activations or self.constants) or any(p.stores for p in inner)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that are quantized."""
        return tuple(d.name for d in self.decisions if not d.why)


def plan(g: Graph, profile: Profile | None, options: QuantOptions, inside: bool = True) -> Plan:
    """Decide how `g` is stored.  A profile is needed unless only weights are converted.

    Unless layers `inside` of loops and branches are wanted, these stay as they are.
    Raises ModelError for a profile of another graph, OptionError for a name to keep that is none.
    """
    check_graph(g)
    if profile is not None and not isinstance(profile, Profile):
        raise OptionError(f"quantize: profile is {told_of(profile)}, expected a Profile",
                          hint="profile_ranges(graph, samples)")  # fmt: skip
    if not isinstance(options, QuantOptions):
        raise OptionError(f"quantize: options is {told_of(options)}, expected QuantOptions(…)")
    if profile is None and options.weights_only == "none":
        raise OptionError("activations are quantized by a profile, but none is given",
                          hint="profile_ranges makes one; weights_only needs none")  # fmt: skip
    if profile is not None and options.weights_only == "none":
        profile.check(g)
    g = taken_in(g) if inside else g
    called = names(g)
    _check_names(g, called.values(), options)
    return _planned(g, called, profile, options, inside)


def _planned(
    g: Graph, called: dict[Value, str], profile: Profile | None, options: QuantOptions, inside: bool
) -> Plan:
    """Return the plan of a graph and of its regions."""
    own = _own(g, called, profile, options)
    within = replace(options, convert_placeholders=False)
    regions = {
        n: tuple(_planned(r, called, profile, within, inside) for r in n.regions)
        for n in g.nodes
        if isinstance(n.op, Control)
    }
    inner = [d for plans in regions.values() for p in plans for d in p.decisions]
    if not inside:
        inner = [replace(d, why=INSIDE) for d in inner]
        regions = {}
    return replace(own, decisions=(*own.decisions, *inner), regions=regions)


def _own(
    g: Graph, called: dict[Value, str], profile: Profile | None, options: QuantOptions
) -> Plan:
    """Return the plan of a graph but for its regions."""
    if options.weights_only != "none":
        decisions, layers = _decided(g, called, options, _weightless)
        alone = tuple(weight_alone(x.node, x.weight, _name(called, x.weight), options)
                      for x in layers if x.weight is not None)  # fmt: skip
        return Plan(g, options, decisions, (), alone)
    assert profile is not None, "only weights are stored without"
    seen = Activations(g, profile, options, called)
    decisions, layers = _decided(g, called, options, seen.obstacle)
    for unit in layers:
        for place, v in unit.computed:
            seen.store(v, place)
    if options.convert_placeholders:
        seen.store_outputs()
    activations = seen.made()
    steps = {a.value: a.parameters.scale for a in activations}
    constants: list[Stored] = []
    for unit in layers:
        if unit.weight is None:
            continue
        step = steps[unit.x]
        stored = weight(
            unit.node, unit.weight, unit.bias, _name(called, unit.weight), step, options
        )
        constants.append(stored)
        if unit.bias is not None and options.bias != "float":
            name = _name(called, unit.bias)
            mean = seen.mean(unit.x)
            if isinstance(unit.node.op, ConvTranspose):
                # Each result has met one of so many elements of the weight.
                mean /= math.prod(unit.node.op.strides)
            constants.append(bias(unit.bias, name, stored, step, mean, options))
    return Plan(g, options, decisions, activations, tuple(constants))


def _weightless(unit: Layer) -> str:
    """Return why a layer has nothing to store where only weights are stored; "" if it has."""
    return "" if unit.weight is not None else "both of its operands are computed: it has no weight"


def _decided(
    g: Graph, called: dict[Value, str], options: QuantOptions, obstacle: Callable[[Layer], str]
) -> tuple[tuple[Decision, ...], list[Layer]]:
    """Return what becomes of each layer, and those that are converted."""
    moving = varying(g)
    decisions, layers = [], []
    for node in g.nodes:
        if not isinstance(node.op, HEAVY) or node.results[0] not in moving:
            continue
        name = called[node.results[0]]
        candidate = layer(g, node, moving)
        why = _unwanted(name, node, options)
        if not why:
            why = candidate if isinstance(candidate, str) else obstacle(candidate)
        decisions.append(Decision(name, node, why))
        if not why:
            assert isinstance(candidate, Layer), "without a reason it is a layer"
            layers.append(candidate)
    return tuple(decisions), layers


def _unwanted(name: str, node: Node, options: QuantOptions) -> str:
    if name in options.keep or node.op.name in options.keep:
        return "it is kept as it is, as asked"
    if options.only and name not in options.only:
        return "it is not among the layers asked for"
    return ""


def _name(called: dict[Value, str], source: ConstantOrigin) -> str:
    return called.get(source.base) or source.base.name


def check_graph(g: object) -> None:
    """Raise OptionError for what is no graph: a path, perhaps.

    Raises UnsupportedError for a model that is imported in parts, and for a graph with parameters:
    variables that no call assigns.
    """
    if isinstance(g, StagedModel):
        refuse_staged("quantized, nor its ranges be profiled")
    require_graph(g)
    assert isinstance(g, Graph), "required"
    if parameters := [name for name in g.initial if name not in g.outputs]:
        raise UnsupportedError(
            f"graph {g.name} can be neither profiled nor quantized: its variables "
            f"{', '.join(parameters)} are parameters, which training changes",
            hint="Trainer.trained makes constants of parameters",
        )


def _check_names(g: Graph, known: Iterable[str], options: QuantOptions) -> None:
    """Raise OptionError for a name to keep or convert that is neither a value's nor a kind."""
    for what, wanted in (("keep", options.keep), ("only", options.only)):
        if unknown := {n for n in wanted - set(known) if find_operator(n) is None}:
            nodes = (n for part in deep(g) for n in part.nodes)
            layers = [n.results[0].name for n in nodes if isinstance(n.op, HEAVY)]
            raise OptionError(
                f"{what} names {', '.join(sorted(unknown))}, which is no value and no operator",
                hint=f"the layers are {', '.join(layers[:8])}{' …' * (len(layers) > 8)}",
            )
