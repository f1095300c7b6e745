"""Stages: parts of a staged model in compiled form, and when each is right.

A stage is entered again wherever its conditions hold of what is known in the middle of a run: the
types of its inputs, the elements that were measured, and the guards of its import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from alpenglow.ir import dims
from alpenglow.ir.dims import Guards, Sym, element, symbol
from alpenglow.ir.staged import RANKS, Apply
from alpenglow.ir.types import NAMES, Array, TensorType
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.memory.layout import compiled
from alpenglow.runtime.staged.kept import Outline

Env = dict[str, Any]
"""Values by name: arrays, lists (sequences), dicts (maps), None."""

NAMED = 1 << 14
"""How many names of values, and of their elements, are remembered as symbols."""

SMALL = 64
"""Integer tensors of at most so many elements are measured as extents, others as they are."""


class State:
    """What is known in the middle of a run.

    `values` are those of all symbols so far; `types` those of arrays, as far as they are said in
    symbols; `elements` what was measured.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self.values: dict[str, int] = {}
        self.types: dict[str, TensorType] = {}
        self.elements: dict[str, Array] = {}

    def type_of(self, name: str) -> TensorType | None:
        """Return the type of a value, its extents new symbols where nothing is known of them."""
        value = self.env[name]
        if not isinstance(value, np.ndarray) or value.dtype not in NAMES:
            return None
        known = self.types.get(name)
        if known is not None:
            return known
        shape = [symbol(f"{_word(name)}__{axis}") for axis in range(value.ndim)]
        return TensorType(NAMES[value.dtype], tuple(shape))

    def measure(self, name: str) -> None:
        """Make the elements of a value known to what follows."""
        array = np.asarray(self.env[name])
        if array.dtype.kind not in "iu" or array.size > SMALL:
            self.elements[name] = array.astype(np.int64).astype(object) if (
                array.dtype == bool and array.size <= SMALL) else array  # fmt: skip
            return
        elements = np.empty(array.shape, object)
        for i, value in enumerate(array.reshape(-1).tolist()):
            elements.reshape(-1)[i], symbol_ = _element(name, i)
            self.values[symbol_] = value
        self.elements[name] = elements


class Matcher:
    """Compares arrays with types that share symbols, and reads the symbols' values off them."""

    def __init__(self, types: Mapping[str, TensorType], guards: Guards = ()) -> None:
        self.names = list(types)
        self._kinds = [(t.numpy, t.rank) for t in types.values()]
        self._sources: dict[str, tuple[str, int]] = {}
        for name, t in types.items():
            for axis, d in enumerate(t.shape):
                if isinstance(d, Sym) and str(d).isidentifier():
                    self._sources.setdefault(str(d), (name, axis))
        symbols = {n for t in types.values() for n in t.symbols()}
        self._symbols = sorted(symbols | {n for d, _ in guards for n in dims.names(d)})
        shapes = ["(" + "".join(f"{d}, " for d in t.shape) + ")" for t in types.values()]
        self._shapes = compiled(self._symbols, shapes)
        conditions = [f"({d}) {relation} 0" for d, relation in guards]
        self._guard = compiled(self._symbols, [" and ".join(conditions) or "True"], "")

    def match(self, env: Env, values: dict[str, int]) -> str | None:
        """Add to `values`; return the name of an array that does not fit, "" for a guard."""
        arrays = [env.get(name) for name in self.names]
        for name, array, (dtype, rank) in zip(self.names, arrays, self._kinds, strict=True):
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != rank:
                return name
        for symbol_, (name, axis) in self._sources.items():
            if symbol_ not in values:
                values[symbol_] = env[name].shape[axis]
        try:
            numbers = [values[s] for s in self._symbols]
        except KeyError:
            return ""
        for name, array, shape in zip(self.names, arrays, self._shapes(*numbers), strict=True):
            if array is not None and array.shape != shape:
                return name
        return None if self._guard(*numbers) else ""


@dataclass(frozen=True, slots=True)
class Record:
    """What ran: a part with so many compiled and interpreted instructions, or an action."""

    what: str
    compiled: int = 0
    interpreted: tuple[str, ...] = ()
    host: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """A host operator that is ready to be applied, often; what it is called, and what is told."""

    label: str
    apply: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    records: tuple[Record]

    @staticmethod
    def of(action: Apply) -> Applied:
        record = Record(action.label, host=action.op.name)
        return Applied(action.label, action.op.prepared(), action.inputs, action.outputs, (record,))

    def act(self, env: Env) -> Sequence[Record]:
        """Add the results to the values; return what ran."""
        results = self.apply(*map(env.get, self.inputs))  # "" is no value, and gets None
        if isinstance(results, tuple):
            env.update({n: r for n, r in zip(self.outputs, results, strict=False) if n})
        elif self.outputs and self.outputs[0]:
            env[self.outputs[0]] = results
        return self.records


class Stage:
    """A part of a model in compiled form, and the stages that may follow it.

    `rest` is what is left to import behind it, None at the end of the model.
    """

    def __init__(self, outline: Outline, run: InProcess | None, rest: Any) -> None:
        self.outline = outline
        self.run = run
        self.rest = rest
        self.needs, actions = outline.then.needs, outline.then.actions
        self.handed_on = list(outline.handed_on.items())
        self.actions = [Applied.of(a) if isinstance(a, Apply) else a for a in actions]
        free = [a for a in actions if not (isinstance(a, Apply) and a.op.forms_follow)]
        self.acted = list(dict.fromkeys(n for a in free for n in a.outputs if n))
        self._matcher = Matcher(outline.inputs, outline.guards)
        elements = outline.elements.items()
        self._exact = {n: (a, a.dtype != object or not _open(a)) for n, a in elements}
        self.next: list[Stage] = []

    def accepts(self, state: State) -> bool:
        """Whether this is how a run in this state goes on; it then knows all symbols."""
        if self._matcher.match(state.env, state.values) is not None:
            return False
        for name, other in self.outline.others.items():
            if (state.type_of(name) is None) != other:
                return False
        for name, (wanted, closed) in self._exact.items():
            got = state.elements.get(name)
            if got is None:  # another thread has found a counter meanwhile
                return False
            if got.dtype != wanted.dtype or got.shape != wanted.shape:
                return False
            if closed and not np.array_equal(got, wanted):
                return False
        return True


def _open(elements: Array) -> bool:
    return any(isinstance(d, Sym) for d in elements.flat)


@lru_cache(NAMED)
def _element(name: str, i: int) -> tuple[Sym, str]:
    """Return the symbol of an element of a value, and its name."""
    x = element(_word(name), i)
    return x, str(x)


@lru_cache(NAMED)
def _word(name: str) -> str:
    """Return an identifier for a name: different ones for different names."""
    # No word has "__" in it, so that none is another with a number behind it.
    plain = [c.isascii() and (c.isalpha() or (c.isdigit() and i > 0)) for i, c in enumerate(name)]
    return "".join(c if p else f"_{ord(c):x}x" for c, p in zip(name, plain, strict=True))


def named(symbol_: str) -> str:
    """Return what a symbol of a run stands for: an element, ``k[0]``, or an extent, ``x.shape[0]``.

    Front ends have symbols of their own, which may look alike: those stay as they are.
    """
    match = re.fullmatch(r"(\w+?)__(e?)(\d+)", symbol_)
    if match is None:
        return symbol_
    name = re.sub(r"_([0-9a-f]{1,6})x", lambda m: chr(int(m[1], 16)), match[1])
    name = name.partition(RANKS)[0]
    return f"{name}[{match[3]}]" if match[2] else f"{name}.shape[{match[3]}]"
