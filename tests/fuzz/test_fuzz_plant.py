"""The mistakes that are planted stand for what could be in the compiler as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import alpenglow
from fuzz.mistakes import MISTAKES, Mistake

PACKAGE = Path(alpenglow.__file__).parent


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_a_mistake_has_one_place(mistake: Mistake) -> None:
    text = (PACKAGE / mistake.file).read_text(encoding="utf-8")

    assert text.count(mistake.old) == 1
    compile(text.replace(mistake.old, mistake.new), mistake.file, "exec")


def test_there_are_enough_mistakes_and_no_two_are_alike() -> None:
    assert len({m.name for m in MISTAKES}) == len({(m.file, m.old) for m in MISTAKES}) >= 30
