"""Programs of StableHLO from MLIR's text: modules and their functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stablehlo.module import Block, Function, Module, Signature, Type
from alpenglow.frontends.stablehlo.text.lexer import Lexer, unquoted
from alpenglow.frontends.stablehlo.text.operations import OperationReader

_RESOURCES = re.compile(r"\{-#(.*?)#-\}", re.DOTALL)
_RESOURCE = re.compile(r'("(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w$.-]*)\s*:\s*"0x([0-9a-fA-F]*)"')
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ALIGNMENT = 4
"""A resource begins with so many bytes for its alignment."""


def read_text(text: str) -> Module:
    """Return the module that a text says; raise ModelError where it is none."""
    return Reader(text).module()


class Reader(OperationReader):
    """The state of reading one text."""

    def __init__(self, text: str) -> None:
        resources: dict[str, bytes] = {}
        for match in _RESOURCES.finditer(text):
            for name, digits in _RESOURCE.findall(match[1]):
                content = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
                resources[name.strip('"')] = content[_ALIGNMENT:]
        super().__init__(Lexer(text), resources)
        self.functions: dict[str, Function] = {}
        self.locations: dict[str, str] = {}

    def module(self) -> Module:
        """Return the module; functions without a module are a module, too."""
        x, name = self.lexer, ""
        while x.kind:
            if x.kind == "alias":
                self._alias()
            elif x.word in ("module", "builtin.module"):
                name = self._module()
            elif x.word == '"builtin.module"':
                self._generic_module()
            elif x.word == "{-#":
                while x.kind and x.word != "#-}":
                    x.next()
                x.want("#-}")
            else:
                self._definition()
        if not self.functions:
            raise x.error("the text has no function, expected func.func")
        named = {n: replace(f, argument_names=tuple(map(self._told, f.argument_names)))
                 for n, f in self.functions.items()}  # fmt: skip
        return Module(named, name)

    def _told(self, location: str) -> str:
        """Return the name in a location, which may follow the functions; "" without a name."""
        inside = self.locations.get(location, location)
        return unquoted(inside) if _STRING.fullmatch(inside) else ""

    def _alias(self) -> None:
        x = self.lexer
        name = x.next()
        x.want("=")
        if name.startswith("#loc") or x.word == "loc":
            x.next()
            self.locations[name] = x.skip("(", ")").strip()
            return
        if name.startswith("!"):
            self.types.aliases[name] = self.types.type()
        else:
            self.types.aliases[name] = self.types.attribute()

    def _module(self) -> str:
        x = self.lexer
        x.next()
        name = self.types.symbol() if x.kind == "symbol" else ""
        if x.take("attributes"):
            self.types.dictionary()
        x.want("{")
        while not x.take("}"):
            if not x.kind:
                raise x.expected("'}' at the end of the module")
            self._definition()
        self._location()
        return name

    def _generic_module(self) -> None:
        x = self.lexer
        x.next()
        for word in ("(", ")"):
            x.want(word)
        while x.word == "<":
            self._properties()
        x.want("(")
        x.want("{")
        if x.kind == "block":
            self._label([])
        while not x.take("}"):
            if not x.kind:
                raise x.expected("'}' at the end of the module")
            self._definition()
        x.want(")")
        if x.word == "{":
            self.types.dictionary()
        x.want(":")
        self.types.type()
        self._location()

    def _definition(self) -> None:
        x = self.lexer
        place = x.place
        if x.word in ("func.func", "func"):
            function = self._function()
        elif x.word == '"func.func"':
            function = self._generic_function()
        elif x.word in ("module", "builtin.module"):
            raise x.error("a module is nested in a module, expected a function")
        else:
            raise x.expected("a function")
        if function.name in self.functions:
            raise ModelError(f"{place}: function '{function.name}' is defined twice, expected once")
        self.functions[function.name] = function

    # ── functions ──

    def _function(self) -> Function:
        x = self.lexer
        x.next()
        public = True
        if x.word in ("public", "private", "nested"):
            public = x.next() == "public"
        name = self.types.symbol()
        self.names, self.scopes = {}, [{}]
        arguments, attributes, told = self._parameters()
        results: list[Type] = []
        result_attributes: list[Mapping[str, Any]] = []
        if x.take("->"):
            results, result_attributes = self._result_types()
        if x.take("attributes"):
            self.types.dictionary()
        inputs = tuple(t for _, t in arguments)
        signature = Signature(inputs, tuple(results))
        if x.word != "{":  # a declaration
            self._location()
            return Function(name, signature, Block(tuple(arguments), ()), public)
        x.next()
        operations = self._operations()
        self._location()
        body = Block(tuple(arguments), operations)
        return Function(name, signature, body, public, tuple(attributes), tuple(result_attributes),
                        tuple(told))  # fmt: skip

    def _parameters(self) -> tuple[list[tuple[str, Type]], list[Mapping[str, Any]], list[str]]:
        x = self.lexer
        x.want("(")
        arguments: list[tuple[str, Type]] = []
        attributes: list[Mapping[str, Any]] = []
        told: list[str] = []
        while not x.take(")"):
            name = f"arg{len(arguments)}"
            if x.kind == "value":
                name = x.next()[1:]
                x.want(":")
            t = self.types.type()
            arguments.append((self.define(name, t), t))
            attributes.append(self.types.dictionary() if x.word == "{" else {})
            told.append(self._location())
            if x.word != ")":
                x.want(",")
        return arguments, attributes, told

    def _result_types(self) -> tuple[list[Type], list[Mapping[str, Any]]]:
        x = self.lexer
        if not x.take("("):
            return [self.types.type()], [{}]
        types: list[Type] = []
        attributes: list[Mapping[str, Any]] = []
        while not x.take(")"):
            types.append(self.types.type())
            attributes.append(self.types.dictionary() if x.word == "{" else {})
            if x.word != ")":
                x.want(",")
        return types, attributes

    def _generic_function(self) -> Function:
        x = self.lexer
        x.next()
        for word in ("(", ")"):
            x.want(word)
        self.names, self.scopes = {}, [{}]
        entries: dict[str, Any] = {}
        if x.word == "<":
            entries |= self._properties()
        x.want("(")
        block = self.region()
        x.want(")")
        if x.word == "{":
            entries |= self.types.dictionary()
        x.want(":")
        self.types.type()
        self._location()
        signature = entries.get("function_type")
        if not isinstance(entries.get("sym_name"), str) or not isinstance(signature, Signature):
            raise x.error("sym_name or function_type of a function is missing")
        public = entries.get("sym_visibility", "public") == "public"
        return Function(entries["sym_name"], signature, block, public)
