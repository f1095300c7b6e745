"""Graphs that converters make of small recorded programs, against their digests.

See *Goldens of converters* in docs/testing.md for what a golden says, and how it is recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.frontends import goldens
from tests.frontends.digests import digest, text_of
from tests.frontends.planted import PLANTED
from tests.frontends.programs import GRAPHS
from tests.fuzz.mistakes import Mistake

import alpenglow as ag

PACKAGE = Path(ag.__file__).parent

MOST = 3
"""Of so many graphs that changed the text is shown."""


def changed(front_end: str, name: str) -> list[str]:
    """Return the outcomes of the programs whose graphs differ from the recorded ones."""
    found: list[str] = []
    for program, recorded in goldens.read(front_end, name):
        try:
            text = text_of(GRAPHS[front_end](name, program))
            now = digest(text)
        except Exception as error:  # of any kind: a converter has a mistake
            now, text = f"{type(error).__name__}: {error}", ""
        if now != recorded:
            shown = text if len(found) < MOST else ""
            found.append(f"{program} : {recorded}, now {now}\n{shown}")
    return found


@pytest.mark.parametrize("name", goldens.names("torch"))
def test_torch(name: str) -> None:
    assert not changed("torch", name)


@pytest.mark.parametrize("name", goldens.names("stablehlo"))
def test_stablehlo(name: str) -> None:
    assert not changed("stablehlo", name)


@pytest.mark.parametrize("name", goldens.names("tflite"))
def test_tflite(name: str) -> None:
    assert not changed("tflite", name)


@pytest.mark.parametrize("mistake", PLANTED, ids=lambda m: m.name)
def test_the_place_of_a_planted_mistake_is_in_the_sources(mistake: Mistake) -> None:
    """Otherwise `tests.frontends.plant` would run the tests without a mistake."""
    source = (PACKAGE / mistake.file).read_text(encoding="utf-8")

    assert source.count(mistake.old) == 1
    assert mistake.old != mistake.new
