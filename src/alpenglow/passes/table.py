"""The table of passes: what a row of it is, and how rows of machines join the common ones.

The order of a table is checked: by what passes need of those before them (properties), and by
reasons, each of which says why one pass runs before another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import getdoc
from typing import Any, Protocol

from alpenglow.base.errors import OptionError
from alpenglow.base.progress import Progress
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op

Properties = frozenset[str]
"""Names of what holds of a graph or program at some place of the table: "primitive", "planned"."""

Reason = tuple[str, str, str]
"""A pass, a later pass, and the reason for this order."""

RENAMED = {
    "bands": "tile_rows",
    "batch": "tile_batch",
    "borders": "expand_padding",
    "condense": "fold_upsample",
    "demand": "slice_to_used",
    "few_bits": "low_bit_matmul",
    "halves": "recover_f16",
    "heads": "share_kv_heads",
    "promote": "f16_to_f32",
    "roll": "stream_rows",
    "settle": "fold_again",
    "signs": "to_u8_i8",
    "unpacks": "propagate_layout",
    "widen": "dequantize_rest",
    "widen_few_bits": "dequantize_low_bit",
}
"""Names of passes until version 0.1, and the present ones.  The old names work for one release."""


class Choices(Protocol):
    """The choices of a caller that decide which passes run: `compiler.Options`."""

    @property
    def numerics(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def indices(self) -> str: ...
    @property
    def activations(self) -> str: ...
    @property
    def keep(self) -> Sequence[str]: ...
    @property
    def memory_nbytes(self) -> int | None: ...
    @property
    def progress(self) -> Progress: ...


def always(choices: Choices) -> bool:
    """Return True: most passes run whatever a caller chooses."""
    return True


@dataclass(frozen=True, slots=True)
class Pass:
    """Describe a step of the pipeline: `run(ir, target)` returns the next form of the program.

    Properties, such as "primitive" or "program", hold between passes; a pass keeps all that it does
    not break.

    Args:
        name: the name of the pass, as `alpenglow show --list` prints it.
        run: the function.
        doc: one line about the pass; "" takes the first line of the docstring of `run`.
        needs: the properties that must hold before the pass.
        makes: the properties that hold after the pass.
        breaks: the properties that may no longer hold after the pass.
        after: the name of the pass behind which a pass of a user or a backend is inserted.
        fast: True if it changes how results are rounded; it runs with numerics="fast" only.
        steps: True if it may round quantized tensors differently, by one step each.
        redefines: True if it changes the meaning of a model.
        ahead: a function that returns True if the pass has work in a graph with dynamic dimensions.
            The pass then runs once, before the graph is compiled per shape specialisation.
        on: the classes of operators that the pass changes; it is skipped for graphs without them.
        when: a function of the options that returns True if the pass runs.
        only: the condition `when` in words.
        machines: the backends for whose targets the pass runs; empty: all.

    Example:
        >>> def show(graph):
        ...     print(len(graph.nodes), "nodes")
        ...     return graph
        >>> shown = ag.Pass("show", lambda graph, target: show(graph), after="fuse")
        >>> options = ag.Options(passes=(shown,))
        >>> exe = ag.compile("model.onnx", shapes={"x": (1, 8)}, options=options)
        2 nodes
    """

    name: str
    run: Callable[..., Any]
    doc: str = ""
    needs: Properties = frozenset()
    makes: Properties = frozenset()
    breaks: Properties = frozenset()
    after: str = ""
    fast: bool = False
    steps: bool = False
    redefines: bool = False
    ahead: Callable[[Graph], bool] | None = None
    on: tuple[type[Op], ...] = ()
    when: Callable[[Choices], bool] = always
    only: str = ""
    machines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise OptionError(
                f"pass '{self.name}': run is {self.run!r}, expected a function that takes a graph "
                "or program and the target"
            )
        if not isinstance(self.on, tuple) or not all(map(_is_operator, self.on)):
            raise OptionError(
                f"pass '{self.name}': on is {self.on!r}, expected a tuple of operator classes "
                "(subclasses of alpenglow.ir.op.Op)"
            )
        if not self.doc:
            first = (getdoc(self.run) or "").partition("\n\n")[0]
            object.__setattr__(self, "doc", " ".join(first.split()))

    def serves(self, machine: str) -> bool:
        """Return True if this pass runs for the targets of a backend.

        Args:
            machine: the name of the backend.

        Returns:
            True or False.
        """
        return not self.machines or machine in self.machines

    def concerns(self, ir: object) -> bool:
        """Return False if a graph has none of the operators that this pass changes.

        Args:
            ir: a graph, or another form of the program.

        Returns:
            True or False.
        """
        if not self.on or not isinstance(ir, Graph):
            return True
        return any(issubclass(op, self.on) for op in {type(node.op) for node in ir.nodes})

    def runs(self, choices: Choices) -> bool:
        """Return True if the pass runs with these options.

        Args:
            choices: the options.

        Returns:
            True or False.
        """
        return self.when(choices) and (choices.numerics == "fast" or not self.fast)


def _is_operator(entry: object) -> bool:
    return isinstance(entry, type) and issubclass(entry, Op)


def ignoring_target(run: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a pass of what is compiled alone as one of that and the target."""
    return lambda ir, target: run(ir)


def properties(*names: str) -> Properties:
    """Return names of properties as a set."""
    return frozenset(names)


def inserted(table: Sequence[Pass], rows: Iterable[Pass]) -> tuple[Pass, ...]:
    """Return the table with each row behind the one that its `after` names.

    Raises OptionError where there is no such pass, or one of the same name.
    """
    stages = list(table)
    for p in rows:
        names = [s.name for s in stages]
        after = current_name(p.after, names)
        if p.name in names:
            raise OptionError(f"pass '{p.name}' is in the table already, expected another name")
        if after not in names:
            raise OptionError(
                f"pass '{p.name}': after is '{p.after}', expected one of: {', '.join(names)}"
            )
        stages.insert(names.index(after) + 1, p)
    return tuple(stages)


def current_name(name: str, known: Sequence[str]) -> str:
    """Return the present name of a pass; a name that no pass has is returned as it is."""
    return name if name in known else RENAMED.get(name, name)


def brought(
    table: Sequence[Pass],
    machines: tuple[str, ...],
    rows: Sequence[Pass],
    reasons: Sequence[Reason],
) -> tuple[tuple[Pass, ...], list[Reason]]:
    """Return the table with the rows that machines share, and their reasons.

    A row that has the name of another's is called by the name of its own first machine before.
    Raises OptionError if a row does not fit in, or a reason names a pass that is not there.
    """
    taken = {p.name for p in table if p.machines}
    called = {p.name: f"{machines[0]}.{p.name}" for p in rows if p.name in taken}

    def own(name: str) -> str:
        return called.get(name, name)

    named = [replace(p, name=own(p.name), after=own(p.after), machines=machines) for p in rows]
    stages = inserted(table, named)
    names = [p.name for p in stages]
    order = [
        (current_name(own(a), names), current_name(own(b), names), why) for a, b, why in reasons
    ]
    for name in (name for before, later, _ in order for name in (before, later)):
        if name not in names:
            raise OptionError(
                f"reasons of {', '.join(machines)} name the pass '{name}', "
                f"expected one of: {', '.join(names)}"
            )
    return stages, order


def held_after(name: str, table: Sequence[Pass]) -> Properties:
    """Return the properties that hold after the pass of this name; none if there is none."""
    held: Properties = frozenset()
    for p in table:
        held = (held - p.breaks) | p.makes
        if p.name == name:
            return held
    return frozenset()


def unmet(table: Sequence[Pass]) -> str | None:
    """Return a sentence about the first pass whose needs are not met; None if all are."""
    held: set[str] = set()
    for p in table:
        if lacking := p.needs - held:
            return f"pass {p.name} needs {', '.join(sorted(lacking))}, which does not hold there"
        held = (held - p.breaks) | p.makes
    return None


def disorder(table: Sequence[Pass], reasons: Iterable[Reason]) -> str | None:
    """Return a sentence about what is wrong with the order of a table; None if nothing is."""
    position = {p.name: i for i, p in enumerate(table)}
    for before, later, why in reasons:
        if not position[before] < position[later]:
            return f"pass {before} runs before {later}: {why}"
    return unmet(table)
