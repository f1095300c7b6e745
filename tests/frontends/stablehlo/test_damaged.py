"""Damaged programs: whatever they hold, reading them ends in time, if not well in an error."""

from __future__ import annotations

import random
import re
import time

import pytest
from tests.frontends.stablehlo.programs import FOLDER

from alpenglow.base.errors import AlpenglowError
from alpenglow.frontends.stablehlo.loading import load

BINARY = sorted((FOLDER / "tests" / "vhlo").glob("*.bc"))
TEXT = sorted((FOLDER / "tests" / "interpret").glob("*.mlir"))
LONGEST = 5.0
"""Seconds that reading one file may take."""

WORDS = (b"tensor<", b">", b"dense<", b'"', b"(", b"}", b"[" * 200, b"->", b"%0", b"9" * 20,
         b"-1", b"?", b"complex<", b"!quant.uniform<", b"\xff", b"\0", b"^bb0",
         b"tuple<" * 80)  # fmt: skip
NUMBER = re.compile(rb"(?<![%#\w.])\d+(?=[,\]>x: ])")
NUMBERS = (b"0", b"1", b"2", b"7", b"-1", b"100", b"?", b"9223372036854775807")

pytestmark = pytest.mark.skipif(not BINARY, reason=f"no suite in {FOLDER}")


def damaged(content: bytes, chance: random.Random, text: bool) -> bytes:
    """Return a file in which something is another."""
    if text and chance.random() < 0.4:
        content = re.sub(rb"\n[^\n]*\bcheck\.[^\n]*", b"", content)
        places = list(NUMBER.finditer(content))
        place = chance.choice(places) if places else None
        if place is not None:
            return content[: place.start()] + chance.choice(NUMBERS) + content[place.end() :]
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(made))
        how = chance.random()
        if text and how < 0.4:
            made[at : at + chance.choice((0, 1, 4))] = chance.choice(WORDS)
        elif how < 0.7:
            made[at] = chance.randrange(256)
        elif how < 0.85:
            del made[at : at + chance.choice((1, 8, 100))]
        else:
            made[at:at] = made[: chance.choice((1, 50, 300))]
        made = made or bytearray(b"\0")
    return bytes(made)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_program_is_an_error(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        text = chance.random() < 0.6
        content = damaged(chance.choice(TEXT if text else BINARY).read_bytes(), chance, text)

        begin = time.monotonic()
        try:
            load(content)
        except AlpenglowError as error:
            assert error.message
        assert time.monotonic() - begin < LONGEST
