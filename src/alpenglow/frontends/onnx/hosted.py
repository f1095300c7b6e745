"""The table from (domain, operator name, since-version) to what runs on the host.

Sequences, optionals, maps and tensors of strings enter no graph: an operator that takes or makes
one becomes an `alpenglow.ir.op.Host`, which the runtime applies between graphs.  (If it only moves
or compares strings, it becomes one of numbers instead: see `ranked`.)  The entries here
are used for operators without an ordinary converter, where an operand is such a value, and where
the attributes of a node say that it makes one (`makes_host_value`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.base.extensions import bring_extras, found_with_extras
from alpenglow.frontends.onnx.versions import Versions, module_of
from alpenglow.ir.op import Host


@dataclass(frozen=True)
class HostSite:
    """One ONNX node that runs on the host: its attributes, and how many operands it has.

    Attributes are read as for a `Site`; string tensors are arrays of str.  `inputs` counts the
    operands that are given, `outputs` the results that are asked for.
    """

    op_type: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: int
    outputs: int

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute: strings as str, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def needed(self, name: str) -> Any:
        """Return an attribute; raise ModelError if it is missing."""
        if name not in self.attributes:
            raise ModelError(f"{self.op_type}: attribute '{name}' is missing")
        return self.attributes[name]

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """Return an attribute that is one of some words; raise ModelError if it is none."""
        word = self.attribute(name, default)
        if word not in allowed:
            raise ModelError(
                f"{self.op_type}: {name} is '{word}', expected one of {', '.join(allowed)}"
            )
        return str(word)


Hosted = Callable[[HostSite], Host]
Test = Callable[[HostSite], bool]

_TABLE: Versions[Hosted] = Versions("hosted form")
_TESTS: Versions[Test] = Versions("test for host values")


def hosted(
    name: str, *, since: int = 1, domain: str = "", makes: Test | None = None
) -> Callable[[Hosted], Hosted]:
    """Register the decorated function for an operator of ONNX.

    `makes` returns True for a node that makes a host value even of tensors of numbers.  If the core
    has a converter for the operator, `makes` belongs to the core as well: see `makes_host`.
    """

    def add(entry: Hosted) -> Hosted:
        _TABLE.add(domain, name, since, entry)
        if makes is not None:
            makes_host(name, since=since, domain=domain)(makes)
        return entry

    return add


def makes_host(name: str, *, since: int = 1, domain: str = "") -> Callable[[Test], Test]:
    """Register the decorated test, which returns True for a node that makes a host value."""

    def add(test: Test) -> Test:
        _TESTS.add(domain, name, since, test)
        return test

    return add


def find_hosted(domain: str, name: str, opset: int) -> Hosted | None:
    """Return the hosted form of an operator of the given opset, or None."""
    return found_with_extras("onnx", lambda: _TABLE.find(domain, name, opset), module_of)


def makes_host_value(domain: str, s: HostSite) -> bool:
    """Return True if a node, by its attributes, makes a value that no graph holds.

    Nodes that have no converter are not asked about: tests are registered with converters.
    """
    test = _TESTS.find(domain, s.op_type, s.opset)
    return test is not None and test(s) and find_hosted(domain, s.op_type, s.opset) is not None


def supported_on_host() -> list[str]:
    """Return the names of all operators that have a hosted form, as `table.supported` does."""
    bring_extras("onnx")
    return _TABLE.names()
