"""State in bundles of other machines, run in emulators, and watched by sanitizers here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from bundle_cases import DRIVER, STRICT, run
from growing_cases import rows
from test_bundle_cross import EMULATED
from test_bundle_state import STEP, made_of, masked

pytestmark = pytest.mark.cross

LENGTH = 24
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-psabi"]


def stepped(
    folder: Path, compiler: Sequence[str], runner: Sequence[str], flags: Sequence[str] = (),
    **options: Any,
) -> NDArray[np.float32]:  # fmt: skip
    """Return what a program with a bundle of `masked` in it makes of the rows of a state."""
    made = made_of(masked(), folder, length=LENGTH, **options)
    code = next(made.folder / f for f in made.files if f in ("dec.o", "dec.c"))
    program, source = folder / "program", DRIVER.with_name("bundle_state.c")
    run(*compiler, *STRICT, *flags, "-I", made.folder, source, code, "-o", program)
    np.concatenate([rows(1, 1, k) for k in range(LENGTH)]).tofile(folder / "in.bin")
    files = (made.folder / "dec.weights.bin", folder / "in.bin", folder / "out.bin")
    run(*runner, program, *files)
    return np.fromfile(folder / "out.bin", np.float32).reshape(LENGTH, 8)


def expected(target: str) -> NDArray[np.float32]:
    session = ag.compile(masked(), target, 1, shapes=STEP, state=True).session(length=LENGTH)
    return np.concatenate(
        [session(rows(1, 1, k), np.zeros((1, k + 1), np.float32))[0] for k in range(LENGTH)]
    )


@pytest.mark.parametrize("target", EMULATED)
def test_state_is_kept_on_other_machines(tmp_path: Path, target: str) -> None:
    compiler, runner = EMULATED[target]
    static = ["-static"] if runner else []
    actual = stepped(tmp_path, compiler, runner, static, target=target, freestanding=True)

    np.testing.assert_allclose(actual, expected("interpreter"), rtol=0, atol=2e-5)


@pytest.mark.parametrize("portable", [False, True])
def test_sanitizers_find_nothing_in_c(tmp_path: Path, portable: bool) -> None:
    actual = stepped(tmp_path, ["gcc"], [], SANITIZED, target="x86-64-v2", format="c",
                     portable=portable)  # fmt: skip

    np.testing.assert_allclose(actual, expected("x86-64-v2"), rtol=0, atol=1e-5)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v2,x86-64-v3,x86-64-v4"])
def test_the_steps_of_an_object_are_those_of_a_session(tmp_path: Path, target: str) -> None:
    actual = stepped(tmp_path, ["gcc"], [], target=target)

    if "," not in target:
        assert actual.tobytes() == expected(target).tobytes()
    np.testing.assert_allclose(actual, expected("interpreter"), rtol=0, atol=2e-5)
