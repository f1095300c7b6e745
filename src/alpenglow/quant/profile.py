"""Profiles: what was seen of each value of a graph while it ran on samples, and the file of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alpenglow.base.errors import AlpenglowError, ModelError, ParseError
from alpenglow.base.words import counted, shown
from alpenglow.ir.graph import Graph
from alpenglow.quant.document import Entry, parsed, written
from alpenglow.quant.naming import fingerprint
from alpenglow.quant.observe import ObservedRange

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """Hold the ranges of the values of a graph, measured on a number of samples.

    Args:
        graph: the fingerprint of the graph; `quantize` raises ModelError for another graph.
        samples: the number of samples.
        ranges: the ranges by the names of the values.

    Example:
        >>> graph = ag.load("model.onnx")
        >>> profile = ag.profile_ranges(graph, [np.ones((1, 8), np.float32)])
        >>> profile.save("ranges.yaml")
        >>> ag.Profile.load("ranges.yaml").samples
        1
    """

    graph: str
    samples: int
    ranges: Mapping[str, ObservedRange]

    def __repr__(self) -> str:
        values, samples = counted(len(self.ranges), "value"), counted(self.samples, "sample")
        return f"Profile({values} of graph {shown(self.graph[:12])}…, on {samples})"

    def check(self, g: Graph) -> None:
        """Raise ModelError unless this is a profile of a graph.

        Args:
            g: the graph.

        Raises:
            ModelError: if the profile was measured on another graph.
        """
        digest = fingerprint(g)
        if digest != self.graph:
            raise ModelError(
                f"the profile is of another graph: it was made of {self.graph[:12]}…, "
                f"this one is {digest[:12]}…",
                hint="profile this graph with profile_ranges, or `alpenglow profile-ranges`",
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a YAML file.

        Args:
            path: the file to write or replace.
        """
        Path(path).write_text(self.text(), encoding="utf-8")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile:
        """Read a profile from a file.

        Args:
            path: the file.

        Returns:
            The profile.

        Raises:
            ParseError: if the file is not a profile.
        """
        try:
            return Profile.parse(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise ParseError("the profile is binary, expected UTF-8 text", file=str(path)) from None
        except AlpenglowError as error:
            raise error.located(file=str(path)) from None

    def text(self) -> str:
        """Return the profile as YAML, with a histogram of block characters above each value.

        Returns:
            The text, which `parse` reads.
        """
        values: dict[str, Entry] = {name: _entry(r) for name, r in self.ranges.items()}
        document: dict[str, Entry] = {
            "format": FORMAT, "graph": "sha256-" + self.graph, "samples": self.samples,
            "values": values,
        }  # fmt: skip
        head = "# Ranges of a graph's values: what `alpenglow quantize --ranges` reads.\n"
        return head + written(document, {n: r.sparkline() for n, r in self.ranges.items()})

    @staticmethod
    def parse(text: str) -> Profile:
        """Read the text of a profile.

        Args:
            text: the text that the method `text` returned.

        Returns:
            The profile.

        Raises:
            ParseError: if the text is not a profile.
        """
        document = parsed(text)
        if document.get("format") != FORMAT:
            raise ParseError(f"format is {document.get('format')!r}, expected {FORMAT}")
        graph, samples, values = (document.get(k) for k in ("graph", "samples", "values"))
        if not isinstance(graph, str) or not isinstance(samples, int) or not isinstance(
                values, dict):  # fmt: skip
            raise ParseError("expected the keys graph (text), samples (integer) and values")
        ranges = {name: _range(name, entry) for name, entry in values.items()}
        return Profile(graph.removeprefix("sha256-"), samples, ranges)


def _entry(r: ObservedRange) -> Entry:
    limits: dict[str, Entry] = {"low": r.low, "high": r.high}
    if r.infinite:
        limits["infinite"] = r.infinite
    counts = r.counts.tolist()
    while counts and not counts[-1]:
        counts.pop()
    return {**limits, "begin": r.begin, "end": r.end, "bins": len(r.counts), "counts": counts}


def _range(name: str, entry: Entry) -> ObservedRange:
    if not isinstance(entry, dict):
        raise ParseError(f"value '{name}': expected a mapping")
    numbers = {}
    for key in ("low", "high", "begin", "end"):
        number = entry.get(key)
        if not isinstance(number, int | float) or not np.isfinite(number):
            raise ParseError(f"value '{name}': {key} is {number!r}, expected a finite number")
        numbers[key] = float(number)
    if numbers["low"] > numbers["high"] or numbers["begin"] > numbers["end"]:
        raise ParseError(f"value '{name}': expected low <= high and begin <= end")
    bins, counts, infinite = entry.get("bins"), entry.get("counts"), entry.get("infinite", 0)
    if (not isinstance(bins, int) or not isinstance(counts, list) or not len(counts) <= bins < 1e7
            or not isinstance(infinite, int)):  # fmt: skip
        raise ParseError(
            f"value '{name}': expected bins (integer below 1e7), at most as many counts, and "
            "infinite (integer)"
        )
    if not all(isinstance(c, int) and c >= 0 for c in counts):
        raise ParseError(f"value '{name}': expected counts that are integers of 0 or more")
    full = np.zeros(bins, np.int64)
    full[: len(counts)] = counts
    return ObservedRange(**numbers, counts=full, infinite=infinite)
