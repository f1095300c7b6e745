"""An artifact in an archive: three sections, and what the header says of it.

The program is text, the table is JSON, the kernels are object files, one after the other, in the
order and of the lengths that the header lists.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from alpenglow.base.errors import ModelError
from alpenglow.ir.dims import (
    RELATIONS,
    Guards,
    Sym,
    Told,
    assuming,
    is_open,
    parse,
)
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.machines.api import Artifact, Entry
from alpenglow.program.text import parse_program, print_program


class Extent(NamedTuple):
    """A run of bytes in the file."""

    offset: int
    nbytes: int

    def within(self, view: memoryview) -> memoryview:
        """Return these bytes of `view`; raise ValueError where they are not all there."""
        if not 0 <= self.offset <= self.offset + self.nbytes <= len(view):
            end = self.offset + self.nbytes
            raise ValueError(f"the file has {len(view)} bytes, expected at least {end}")
        return view[self.offset : self.offset + self.nbytes]


class Compiled(NamedTuple):
    """An artifact whose program has not been read yet."""

    program: str
    table: tuple[Entry, ...]
    objects: dict[str, bytes]
    guards: Guards
    values: dict[str, int]


def sections(number: int, artifact: Artifact) -> dict[str, bytes]:
    """Return the sections of an artifact, the one of this number in its archive."""
    return {
        f"program{number}": print_program(artifact.program).encode(),
        f"table{number}": json.dumps([_row(e) for e in artifact.table]).encode(),
        f"kernels{number}": b"".join(artifact.objects.values()),
    }


def described(artifact: Artifact) -> dict[str, Any]:
    """Return what the header says of an artifact."""
    return {
        "kernels": {name: len(image) for name, image in artifact.objects.items()},
        "guards": printed(artifact.guards),
        "values": dict(artifact.values),
    }


def damaged(why: object) -> ModelError:
    """Return the error for an archive whose content is not what `save` wrote."""
    return ModelError(f"the archive is damaged: {why}", hint="copy or save the archive again")


def unpacked(number: int, held: Mapping[str, memoryview], fields: Mapping[str, Any]) -> Compiled:
    """Return what the sections hold; raise what Python or `parse` does where they are not ours."""
    values = dict(fields["values"])
    if any(type(v) is not int for v in values.values()):
        raise TypeError(f"values is {values}, expected integers")
    return Compiled(
        str(held[f"program{number}"], "utf-8"),
        _entries(json.loads(bytes(held[f"table{number}"]))),
        _objects(held[f"kernels{number}"], fields["kernels"]),
        parsed(fields["guards"]),
        values,
    )


def artifact(
    one: Compiled, weights: Mapping[str, Array], target: Target, metadata: Metadata, *,
    trusted: bool
) -> Artifact:  # fmt: skip
    """Return an artifact, its program read; raise what `parse_program` does.

    Where extents are open, types are inferred as they were when it was compiled: with the numbers
    that symbols stood for then.  What that takes for granted has to hold.
    """
    assumption = Told(one.values) if one.values else None
    with assuming(assumption):
        program = parse_program(
            one.program, weights, trusted=trusted, may_be_open=assumption is not None
        )
    asked = () if assumption is None else assumption.guards
    guards = tuple(dict.fromkeys((*one.guards, *asked)))
    run = {e.kernel for e in one.table if e.kernel}
    if run - one.objects.keys() or len(one.table) != len([*program.instrs()]):
        raise damaged("its table does not belong to its program")
    return Artifact(target, program, one.objects, one.table, guards, metadata, one.values)


def printed(guards: Guards) -> list[list[str]]:
    """Return guards as JSON has them."""
    return [[str(d), relation] for d, relation in guards]


def parsed(pairs: Iterable[Sequence[str]]) -> tuple[tuple[Sym, str], ...]:
    """Read what `printed` wrote."""
    guards = []
    for text, relation in pairs:
        d = parse(text)
        if not isinstance(d, Sym):
            raise ValueError(f"a guard is of {text}, expected a dynamic dimension")
        if relation not in RELATIONS:
            raise ValueError(
                f"the relation is '{relation}', expected one of {', '.join(RELATIONS)}"
            )
        guards.append((d, relation))
    return tuple(guards)


def _row(e: Entry) -> list[Any]:
    """Return an entry of the table as JSON has it: extents are numbers, or texts of symbols."""
    extent = str(e.extent) if is_open(e.extent) else e.extent
    grid = [list(map(str, e.groups)), list(e.threads)] if e.groups else []
    return [e.kernel, extent, e.stops, e.faults, list(map(str, e.extents)), *grid]


def _entries(rows: Iterable[Sequence[Any]]) -> tuple[Entry, ...]:
    """Read what `_row` wrote of each; extents that say the same are one."""
    read = functools.cache(parse)
    entries = []
    for kernel, extent, stops, faults, extents, *grid in rows:
        symbols = tuple(d for d in map(read, extents) if isinstance(d, Sym))
        if len(symbols) != len(extents):
            raise ValueError(f"extents is {extents}, expected dynamic dimensions")
        d = read(str(extent))
        groups, threads = grid or ((), ())
        entries.append(
            Entry(str(kernel), d, symbols, bool(stops), bool(faults),
                  tuple(map(read, groups)), tuple(map(int, threads)))
        )  # fmt: skip
    return tuple(entries)


def _objects(kernels: memoryview, sizes: Mapping[str, int]) -> dict[str, bytes]:
    images, offset = {}, 0
    for name, nbytes in sizes.items():
        images[name] = bytes(Extent(offset, nbytes).within(kernels))
        offset += nbytes
    return images
