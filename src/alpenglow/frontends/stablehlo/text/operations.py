"""Operations of MLIR's text: in their generic form, or in forms of their own.

Each value gets a name that no other of its function has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stablehlo.module import RETURNS, Block, Operation, Signature, Type
from alpenglow.frontends.stablehlo.text.attributes import AttributeReader
from alpenglow.frontends.stablehlo.text.forms import Form
from alpenglow.frontends.stablehlo.text.lexer import Lexer
from alpenglow.frontends.stablehlo.text.pretty import pretty


class OperationReader:
    """The state of reading the operations of a text."""

    def __init__(self, lexer: Lexer, resources: Mapping[str, bytes]) -> None:
        self.lexer = lexer
        self.types = AttributeReader(lexer, resources)
        self.names: dict[str, Type] = {}  # of values of this function
        self.scopes: list[dict[str, str]] = []

    # ── names ──

    def define(self, name: str, t: Type) -> str:
        """Return the name by which a value of a type goes that is made here."""
        if any(name in scope for scope in self.scopes):
            raise self.lexer.error(f"%{name} is defined twice, expected once")
        unique, count = name, 0
        while unique in self.names:
            count += 1
            unique = f"{name}~{count}"
        self.names[unique] = t
        self.scopes[-1][name] = unique
        return unique

    def value(self) -> str:
        """Return the name of a value that is read here."""
        x = self.lexer
        word = x.want_kind("value", "a value")[1:]
        if x.word == "#" and x.take("#"):
            word = f"{word}#{x.want_kind('number', 'the number of a result')}"
        for scope in reversed(self.scopes):
            if word in scope:
                return scope[word]
            if f"{word}#0" in scope and f"{word}#1" not in scope:
                return scope[f"{word}#0"]
        raise x.error(f"%{word} is undefined, expected an earlier value")

    # ── operations ──

    def _operations(self) -> tuple[Operation, ...]:
        """Return operations up to the brace that ends them."""
        x = self.lexer
        operations: list[Operation] = []
        while not x.take("}"):
            if not x.kind:
                raise x.expected("'}'")
            if x.kind == "block":
                raise x.error("a region has several blocks, expected one")
            operations.append(self.operation())
        if not operations or operations[-1].name not in RETURNS:
            last = operations[-1].name if operations else "nothing"
            raise x.error(f"a block ends with {last}, expected return")
        if any(o.name in RETURNS for o in operations[:-1]):
            raise x.error("a block has two returns, expected one")
        return tuple(operations)

    def operation(self) -> Operation:
        """Return the next operation."""
        x = self.lexer
        place = x.place
        results = self._results()
        x.enter()
        if x.kind == "string":
            form = self._generic()
        elif x.kind == "name":
            form = pretty(self, x.next())
        else:
            raise x.expected("an operation")
        x.leave()
        self._location()
        names = [n for name, count in results for n in _numbered(name, count)]
        if len(names) != len(form.types) and names:
            raise ModelError(
                f"{place}: {form.name} has {len(names)} names for results, "
                f"expected {len(form.types)}"
            )
        if names:
            defined = tuple(map(self.define, names, form.types))
        else:
            defined = self._unnamed(form.types)
        read = tuple(self.names[name] for name in form.operands)
        return Operation(
            form.name, tuple(form.operands), defined, tuple(form.types), form.attributes,
            tuple(form.regions), place, read,
        )  # fmt: skip

    def _unnamed(self, types: Sequence[Type]) -> tuple[str, ...]:
        """Return names for results that the text does not name."""
        names = []
        for t in types:
            names.append(f"unnamed{len(self.names)}")
            self.names[names[-1]] = t
        return tuple(names)

    def _results(self) -> list[tuple[str, int]]:
        x = self.lexer
        results: list[tuple[str, int]] = []
        while x.kind == "value":
            name = x.next()[1:]
            count = 1
            if x.take(":"):
                count = x.integer()
                if not 0 < count <= 1 << 16:
                    raise x.error(f"%{name} has {count} results, expected 1 to {1 << 16}")
                results.append((f"{name}#", count))
            else:
                results.append((name, count))
            if not x.take(","):
                x.want("=")
                break
        return results

    def _generic(self) -> Form:
        """Return an operation in generic form: ``"name"(operands) <{…}> ({…}) {…} : types``."""
        x = self.lexer
        form = Form(x.string())
        x.want("(")
        while not x.take(")"):
            form.operands.append(self.value())
            if x.word != ")":
                x.want(",")
        if x.word == "<":
            form.attributes |= self._properties()
        if x.take("("):
            while not x.take(")"):
                form.regions.append(self.region())
                if x.word != ")":
                    x.want(",")
        if x.word == "{":
            form.attributes |= self.types.dictionary()
        x.want(":")
        signature = self.types.type()
        if not isinstance(signature, Signature):
            raise x.error(f"the type of {form.name} is {signature}, expected a signature")
        if len(signature.inputs) != len(form.operands):
            raise x.error(
                f"{form.name} has {len(form.operands)} operands, "
                f"expected {len(signature.inputs)} as in its signature"
            )
        form.types = list(signature.results)
        return form

    def _properties(self) -> dict[str, Any]:
        x = self.lexer
        x.want("<")
        entries = self.types.dictionary()
        x.want(">")
        return entries

    def region(self, arguments: Sequence[tuple[str, Type]] = ()) -> Block:
        """Return a region, which has one block; `arguments` are textual names that it knows."""
        x = self.lexer
        x.want("{")
        self.scopes.append({})
        named = [(self.define(name, t), t) for name, t in arguments]
        if x.kind == "block":
            self._label(named)
        operations = self._operations()
        self.scopes.pop()
        return Block(tuple(named), operations)

    def _label(self, named: list[tuple[str, Type]]) -> None:
        """Go past the label of a block, and add its arguments."""
        x = self.lexer
        x.next()
        if x.take("("):
            while not x.take(")"):
                name = x.want_kind("value", "an argument")[1:]
                x.want(":")
                t = self.types.type()
                named.append((self.define(name, t), t))
                self._location()
                if x.word != ")":
                    x.want(",")
        x.want(":")

    def _location(self) -> str:
        """Skip a location and return the text in its brackets; "" without a location."""
        if self.lexer.word != "loc":
            return ""
        self.lexer.next()
        return self.lexer.skip("(", ")").strip()


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)] if name.endswith("#") else [name]
