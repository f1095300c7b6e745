"""Programs without calls that write: what is written in place becomes a value of its own.

A ``.pt2`` file has such calls (``aten.relu_.default``) if it was saved as `torch.export.export`
made it.  A write into a tensor writes into all that share its memory: what it is a view of is put
together anew, other views are taken anew when they are read next.  Where that cannot be told, who
reads such a tensor later is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from alpenglow.frontends.torch.program import Argument, Body, Call, Ref, Unknown
from alpenglow.frontends.torch.views import UNTIL_TRAINED, VIEWS, Link, links, written_back
from alpenglow.ir.types import TensorType

IN_PLACE = re.compile(r"aten\.([a-zA-Z](?:\w*[a-zA-Z0-9])?)_(\.\w+)")
"""Names of operators that write into their first argument, and return that."""

RENAMED = {"aten.transpose.default": "aten.transpose.int"}
"""Functional operators whose name is not the name of their in-place form without the "_"."""

TOLD_ELSEWHERE = "it may be a view of a tensor that was written in place"


@dataclass(frozen=True, slots=True, eq=False)
class Functional:
    """A body without writes; `written` are inputs that it wrote.

    What is in these then are the last outputs of the body, after those that `returned` names as the
    body with writes did.
    """

    body: Body
    returned: tuple[Argument, ...]
    written: tuple[str, ...] = ()


def functional(body: Body, in_order: Callable[[str], bool]) -> Functional:
    """Return a body in which no call writes into a tensor.

    `in_order` says whether the elements of a tensor lie in order: reshaped, that is a view.
    """
    if not any(IN_PLACE.fullmatch(c.target) for c in body.calls):
        return Functional(body, body.outputs)
    return _Rewriter(body, in_order).run()


class _Rewriter:
    """Goes through the calls of a body, whose names are those of tensors, not of values.

    `now` is the name of the value that a tensor has; of a `stale` one it must be taken anew,
    nobody knows that of a `lost` one.
    """

    def __init__(self, body: Body, in_order: Callable[[str], bool]) -> None:
        self.body = body
        self.in_order = in_order
        self.types = dict(body.types)
        self.now: dict[str, str] = {}
        self.stale: set[str] = set()
        self.lost: set[str] = set()
        self.of: dict[str, Link] = {}  # what a tensor shares the memory of
        self.sharing: dict[str, set[str]] = {}
        self.calls: list[Call] = []
        self.fresh = (f"written_{i}" for i in itertools.count())

    def run(self) -> Functional:
        for call in self.body.calls:
            match = IN_PLACE.fullmatch(call.target)
            x = call.arguments.get("self")
            if match and isinstance(x, Ref):
                target = f"aten.{match[1]}{match[2]}"
                call = replace(call, target=RENAMED.get(target, target))
                if call.target not in VIEWS:
                    self._write(call, x.name)
                    continue
            self.calls.append(replace(call, arguments=self._renamed(call.arguments)))
            for name, link in links(call, self.types, self.in_order):
                self._link(name, link)
        written = tuple(i for i in self.body.inputs if i in self.now)
        outputs = (*self.body.outputs, *map(Ref, written))
        outputs = tuple(map(self._argument, outputs))
        body = replace(self.body, calls=tuple(self.calls), outputs=outputs, types=self.types)
        return Functional(body, self.body.outputs, written)

    # ── reading ──

    def _renamed(self, arguments: Mapping[str, Argument]) -> dict[str, Argument]:
        return {k: self._argument(a) for k, a in arguments.items()}

    def _argument(self, argument: Argument) -> Argument:
        """Return an argument with the names of values."""
        match argument:
            case Ref(name=name):
                if name in self.stale:
                    self._take(name)
                return Unknown(TOLD_ELSEWHERE) if name in self.lost else Ref(self._value(name))
            case tuple():
                return tuple(map(self._argument, argument))
        return argument

    def _value(self, name: str) -> str:
        return self.now.get(name, name)

    def _take(self, name: str) -> None:
        """Take a view anew, with all that its call makes."""
        call = self.of[name].call
        arguments = self._renamed(call.arguments)
        if any(isinstance(a, Unknown) for a in arguments.values()):
            self.lost |= self.stale & set(call.results)
            self.stale -= self.lost
            return
        names = {r: self._named(self.types.get(r)) for r in call.results if r in self.stale}
        results = tuple(names.get(r, "") for r in call.results)
        self.calls.append(replace(call, arguments=arguments, results=results))
        self.now |= names
        self.stale -= names.keys()

    def _named(self, t: TensorType | None) -> str:
        name = next(n for n in self.fresh if n not in self.body.types)
        if t is not None:
            self.types[name] = t
        return name

    # ── writing ──

    def _link(self, name: str, link: Link) -> None:
        self.of.setdefault(name, link)
        for one, other in ((name, link.source), (link.source, name)):
            self.sharing.setdefault(one, set()).add(other)

    def _write(self, call: Call, x: str) -> None:
        """Make a call that writes one that does not, and all know of it that share the memory."""
        result = next(filter(None, call.results), "") or self._named(self.types.get(x))
        arguments = self._renamed(call.arguments)
        if call.target in UNTIL_TRAINED:
            arguments["input"] = arguments.pop("self")
        self.calls.append(replace(call, arguments=arguments, results=(result,)))
        told = {x, result}
        self.now[x] = result
        above = x
        while (link := self.of.get(above)) and link.source not in told:
            value = self._written_back(link, above)
            if value is None:
                break
            self.now[link.source] = value
            told.add(link.source)
            above = link.source
        self.stale -= told
        self.lost -= told
        self._spread(told)
        again = replace(call, target="aten.alias.default", arguments={"self": Ref(x)})
        self._link(result, Link(x, replace(again, results=(result,)), known=True))

    def _written_back(self, link: Link, view: str) -> str | None:
        """Return the value of what a view is of, after the view was written."""
        source = self._argument(Ref(link.source))
        t = self.types.get(link.source)
        if not link.known or t is None or isinstance(source, Unknown):
            return None
        made = written_back(link.call, t, source, Ref(self._value(view)))
        if made is None:
            return None
        if isinstance(made, Ref):
            return made.name
        name = self._named(t)
        self.calls.append(replace(made, results=(name,)))
        return name

    def _spread(self, told: Iterable[str]) -> None:
        """Let all that share memory with those that are told be taken anew, or be lost."""
        seen = set(told)
        waiting = list(seen)
        while waiting:
            name = waiting.pop()
            for other in self.sharing.get(name, ()):
                if other in seen:
                    continue
                seen.add(other)
                waiting.append(other)
                below = self.of.get(other)
                takes = below is not None and below.known and below.source == name
                (self.stale if takes and name not in self.lost else self.lost).add(other)
                self.stale -= self.lost
