"""Goldens of converters: small programs, and digests of the graphs that front ends make of them.

A file is for a module of converters.  A line is a program, " : " and the digest of its graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.frontends.digests import digest, text_of

from alpenglow.ir.graph import Graph

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "converters"
"""A folder for each front end."""


def names(front_end: str) -> list[str]:
    """Return the modules of converters that have goldens."""
    return sorted(p.stem for p in (FOLDER / front_end).glob("*.golden"))


def read(front_end: str, name: str) -> list[tuple[str, str]]:
    """Return the programs of a module of converters, each with its digest."""
    lines = (FOLDER / front_end / f"{name}.golden").read_text(encoding="utf-8").splitlines()
    pairs = (line.rpartition(" : ") for line in lines)
    return [(program, digested) for program, _, digested in pairs]


def write(front_end: str, name: str, graphs: Sequence[tuple[str, Graph]]) -> None:
    """Write the goldens of a module of converters."""
    place = FOLDER / front_end
    place.mkdir(parents=True, exist_ok=True)
    lines = [f"{program} : {digest(text_of(graph))}\n" for program, graph in graphs]
    (place / f"{name}.golden").write_text("".join(lines), encoding="utf-8")
