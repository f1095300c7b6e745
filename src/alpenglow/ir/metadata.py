"""What a model says of itself besides its graph: who made it, their words, how it is called.

Nothing here changes what is computed.  All of it is text of somebody else's, and bounded: whoever
prints it escapes it (`base.words`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from typing import Any

from alpenglow.ir.structure import Structure
from alpenglow.ir.structure import of_plain as structure_of

LONGEST_TEXT = 1 << 16
"""How many characters are kept of a text; a longer one ends in "…"."""

MOST_ENTRIES = 1024
"""How many opsets and how many properties are kept."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model says of itself; "", 0 and empty mappings where it says nothing.

    `producer` and `producer_version` name the program that wrote the file; `domain` and `version`
    are the model's own, `description` is its doc string.  `opsets` has the version of each operator
    set by its domain ("" is ONNX's own), `properties` what ONNX calls `metadata_props`.
    `structure` is how arguments and results are made of tensors, where they are more than these in
    order.
    """

    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    version: int = 0
    description: str = ""
    opsets: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    structure: Structure | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it; `of_plain` reads that back."""
        words = asdict(replace(self, structure=None))
        if self.structure is None:
            del words["structure"]
        else:
            words["structure"] = self.structure.plain()
        return words


NONE = Metadata()


def of_plain(value: Any) -> Metadata:
    """Return the metadata that `Metadata.plain` was made of.

    What is not known here is left out; raises TypeError or ValueError where something is no text,
    no number, or too long.
    """
    if not isinstance(value, dict):
        raise TypeError(f"metadata is a {type(value).__name__}, expected a dict")
    known = {f.name: value[f.name] for f in fields(Metadata) if f.name in value}
    called = known.pop("structure", None)
    for name, content in known.items():
        expected = type(getattr(NONE, name))
        if type(content) is not expected:
            found = type(content).__name__
            raise TypeError(f"metadata.{name} is a {found}, expected {expected.__name__}")
        if expected is dict:
            if len(content) > MOST_ENTRIES:
                found = f"metadata.{name} has {len(content):,} entries"
                raise ValueError(f"{found}, expected at most {MOST_ENTRIES:,}")
            inner = int if name == "opsets" else str
            for v in (v for v in content.values() if type(v) is not inner):
                raise ValueError(f"metadata.{name} holds {v!r}, expected {inner.__name__}")
    return Metadata(**known, structure=None if called is None else structure_of(called))


def text(value: str | bytes) -> str:
    """Return a text of a file, cut where it is long; what is no UTF-8 is replaced."""
    whole = value.decode(errors="replace") if isinstance(value, bytes) else value
    return whole if len(whole) <= LONGEST_TEXT else whole[:LONGEST_TEXT] + "…"


def texts(pairs: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    """Return the first of many pairs of texts as a dict."""
    return {text(key): text(value) for key, value in islice(pairs, MOST_ENTRIES)}
