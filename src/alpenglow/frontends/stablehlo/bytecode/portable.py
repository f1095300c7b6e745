"""Programs of StableHLO from portable bytecode: VHLO operations become StableHLO operations.

Operations get the names and attributes of the text format, so that no other module knows VHLO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alpenglow.base.errors import NONSENSE, ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.bytecode.bytecode import (
    Container,
    OperationReader,
    Raw,
    RawBlock,
)
from alpenglow.frontends.stablehlo.bytecode.bytes_reader import Bytes, Span
from alpenglow.frontends.stablehlo.bytecode.vhlo import PORTABLE, VERSION, Vhlo
from alpenglow.frontends.stablehlo.bytecode.vhlo_table import OPERATIONS
from alpenglow.frontends.stablehlo.dimension_numbers import DOT, GATHER, SCATTER, take_convolution
from alpenglow.frontends.stablehlo.module import (
    Block,
    DotDims,
    Function,
    GatherDims,
    Module,
    Operation,
    Record,
    Signature,
    Token,
    Type,
)

ALGORITHM = ("lhs_precision_type", "rhs_precision_type", "accumulation_type",
             "lhs_component_count", "rhs_component_count", "num_primitive_operations",
             "allow_imprecise_accumulation")  # fmt: skip


def read_bytecode(content: bytes) -> Module:
    """Return the module that bytecode holds; raise ModelError where it is damaged.

    Raises UnsupportedError if it is newer than what is read, or not portable.
    """
    container = Container(content)
    top = OperationReader(container).blocks()
    modules = [o for o in top.operations if o.name == "builtin.module"]
    if len(modules) != 1 or len(top.operations) != 1 or not modules[0].regions:
        held = ", ".join(f"{o.name} at {o.place}" for o in top.operations[:3]) or "nothing"
        raise ModelError(f"the file holds {held}, expected one builtin.module with a region")
    reading = Reading(container)
    functions: dict[str, Function] = {}
    for block in modules[0].regions[0]:
        for raw in block.operations:
            function = reading.function(raw)
            if function.name in functions:
                raise ModelError(f"function '{function.name}' is defined twice, expected once")
            functions[function.name] = function
    return Module(functions, reading.module_name(modules[0]), container.producer)


class Reading:
    """Converts operations of the container to operations of a module."""

    def __init__(self, container: Container) -> None:
        self.file = container
        self.vhlo = Vhlo(container)
        self.kinds: dict[int, Type] = {}

    def module_name(self, raw: Raw) -> str:
        """Return the name of the module; "" if it has none."""
        here = Bytes(self.file.content, raw.properties or Span(0, 0), "the module")
        name: Any = None
        if raw.properties and (number := here.number()) & 1:
            name = self.vhlo.attribute(number >> 1, here)
        elif raw.attributes is not None:
            attributes = self.vhlo.attribute(raw.attributes, here)
            name = attributes.get("sym_name") if isinstance(attributes, dict) else None
        return name if isinstance(name, str) else ""

    def _argument_names(self, block: RawBlock) -> tuple[str, ...]:
        """Return the names of arguments in their locations; "" for a location without a name."""
        here = Bytes(self.file.content, Span(0, 0), "the operations")
        places = [None if at is None else self.vhlo.attribute(at, here)
                  for _, _, at in block.arguments]  # fmt: skip
        names = (dict(p.fields).get("name") if isinstance(p, Record) else None for p in places)
        return tuple(name if isinstance(name, str) else "" for name in names)

    def function(self, raw: Raw) -> Function:
        """Return a function; raise ModelError if that is none."""
        name, attributes = self._named(raw)
        signature, called = attributes.get("function_type"), attributes.get("sym_name")
        if name != "func" or not isinstance(signature, Signature) or not isinstance(called, str):
            raise ModelError(
                f"{raw.place}: the module has {raw.name}, expected a function with sym_name and "
                "function_type"
            )
        self.kinds = {}
        blocks = raw.regions[0] if raw.regions else []
        body = self._block(blocks[0], raw, True) if blocks else Block((), ())
        return Function(
            called, signature, body, attributes.get("sym_visibility") != "private",
            _dictionaries(attributes.get("arg_attrs")), _dictionaries(attributes.get("res_attrs")),
            self._argument_names(blocks[0]) if blocks else (),
        )  # fmt: skip

    def _block(self, raw: RawBlock, of: Raw, outermost: bool = False) -> Block:
        arguments = tuple((str(n), self._typed(n, t)) for n, t, _ in raw.arguments)
        operations = tuple(self._operation(o, outermost) for o in raw.operations)
        if not operations or not operations[-1].name.endswith(".return"):
            last = operations[-1].name if operations else "nothing"
            raise ModelError(f"{of.place}: a block of {of.name} ends with {last}, expected return")
        if any(o.name.endswith(".return") for o in operations[:-1]):
            raise ModelError(f"{operations[0].place}: a block has two returns, expected one")
        return Block(arguments, operations)

    def _typed(self, value: int, number: int) -> Type:
        self.kinds[value] = t = self._type(number)
        return t

    def _type(self, number: int) -> Type:
        t: Type = self.vhlo.type(number, Bytes(self.file.content, Span(0, 0), "the operations"))
        return t

    def _operation(self, raw: Raw, outermost: bool) -> Operation:
        name, attributes = self._named(raw)
        try:
            translation = translated(name, attributes)
        except NONSENSE as error:
            raise ModelError(
                f"{raw.place}: attributes of {raw.name} are not as expected: "
                f"{type(error).__name__}: {error}"
            ) from error
        types = tuple(self._type(t) for t in raw.types)
        read = tuple(self.kinds[n] for n in raw.operands)
        self.kinds |= dict(zip(raw.results, types, strict=True))
        regions = []
        for blocks in raw.regions:
            if blocks:
                regions.append(self._block(blocks[0], raw))
        dialect = "func" if name == "call" or (name == "return" and outermost) else "stablehlo"
        return Operation(
            f"{dialect}.{name}", tuple(map(str, raw.operands)), tuple(map(str, raw.results)),
            types, translation, tuple(regions), raw.place, read,
        )  # fmt: skip

    def _named(self, raw: Raw) -> tuple[str, dict[str, Any]]:
        """Return the name of an operation without its version, and its attributes."""
        dialect, _, versioned = raw.name.partition(".")
        if dialect != "vhlo":
            raise UnsupportedError(
                f"{raw.place}: dialect '{dialect}' of {raw.name} is not supported; supported: vhlo",
                hint=PORTABLE,
            )
        names = OPERATIONS.get(versioned)
        if names is None:
            raise UnsupportedError(
                f"{raw.place}: operation '{raw.name}' of {self.file.producer} is not supported; "
                f"supported: operations of {VERSION}",
                hint=PORTABLE,
            )
        name = versioned.rpartition("_v")[0]
        attributes: dict[str, Any] = {}
        here = Bytes(self.file.content, Span(0, 0), raw.name)
        if raw.attributes is not None:
            said = self.vhlo.attribute(raw.attributes, here)
            attributes |= said if isinstance(said, dict) else {}
        if raw.properties is not None:
            x = Bytes(self.file.content, raw.properties, f"the attributes of {raw.name}")
            attributes |= {n: self.vhlo.attribute(x.number(), x) for n in names}
        missing = [n for n in names if n not in attributes]
        if missing:
            raise ModelError(f"{raw.place}: attribute {missing[0]} of {raw.name} is missing")
        return name, attributes


def _dictionaries(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the attributes of arguments or results; an empty dict if one is not a dict."""
    listed = value if isinstance(value, tuple) else ()
    return tuple(v if isinstance(v, dict) else {} for v in listed)


def translated(name: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the text names them."""
    made = {n: plain(n, v) for n, v in attributes.items()}
    if name in _GATHERS:
        key, fields = _GATHERS[name]
        made[key] = GatherDims(**_taken(made, fields))
    if name == "dot_general":
        made["dot_dimension_numbers"] = DotDims(**_taken(made, DOT))
        if "lhs_precision_type" in made:
            said = tuple((n, made.pop(n)) for n in ALGORITHM)
            if not isinstance(said[0][1], Token):
                made["algorithm"] = Record("dot_algorithm", said)
    if name in ("convolution", "dynamic_conv"):
        made["dimension_numbers"] = take_convolution(made)
    if name == "dynamic_conv":
        made.pop("padding", None)
    if "channel_id" in made:
        handle = (("handle", made.pop("channel_id")), ("type", made.pop("channel_type", 0)))
        made["channel_handle"] = Record("channel_handle", handle)
    return made


_GATHERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "gather": ("dimension_numbers", GATHER),
    "dynamic_gather": ("dimension_numbers", GATHER),
    "scatter": ("scatter_dimension_numbers", SCATTER),
}


def _taken(made: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Remove `fields` from the attributes and return them by their names in a record."""
    return {field: made.pop(name) for name, field in fields.items() if name in made}


AS_ARRAYS = frozenset({"value", "padding", "replica_groups", "source_target_pairs",
                       "operand_layouts", "result_layouts"})  # fmt: skip
"""Attributes that are constants in the text, too; other lists of numbers are tuples there."""


def plain(name: str, value: Any) -> Any:
    """Return an attribute as the text says it: lists of numbers as tuples."""
    if isinstance(value, np.ndarray) and name not in AS_ARRAYS and value.ndim <= 1:
        return tuple(value.tolist())
    return value
