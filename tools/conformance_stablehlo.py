"""Run StableHLO's own suites, and programs of JAX beside jaxlib, and write down what came out.

    python tools/conformance_stablehlo.py        everything; writes docs/conformance-stablehlo.md
    python tools/conformance_stablehlo.py --only quantized --only nets

Programs run in the interpreter and compiled for the CPU, in worker processes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import Array
from conformance_stablehlo_page import Outcome, page, summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance-stablehlo.md"
TARGETS = ("interpreter", "cpu")
RANKS = ("right", "near", "tolerated", "wrong")

# What the tests have for it, which are no package and of which some need JAX.
sys.path.insert(0, str(ROOT))
TESTS = "tests.frontends.stablehlo"
programs = import_module(f"{TESTS}.programs")
suite = import_module(f"{TESTS}.test_suite")
versions = import_module(f"{TESTS}.test_versions")

Judged = Iterator[tuple[str, Callable[[], str]]]
"""Programs by name, each with what runs it and says what it came to."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites, print what they came to, and write the page if all ran."""
    options = _parser().parse_args(arguments)
    chosen = options.only or list(SUITES)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for name in chosen:
            names, _ = SUITES[name]
            jobs = [(name, case, target) for target in TARGETS for case in names()]
            assert jobs, f"there are no programs of {name}: is the suite in {programs.FOLDER}?"
            for several in pool.map(tried, jobs):
                outcomes += several
            print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)
    print("\n".join(summary(outcomes)))
    if not options.only:
        options.page.write_text("\n".join(page(outcomes, version("jaxlib"))) + "\n")
    else:
        for o in outcomes:
            if o.status in ("wrong", "refused", "failed"):
                print(f"{o.suite}: {o.program} ({o.target}): {o.status}: {o.reason}")
    return 0


def tried(job: tuple[str, str, str]) -> list[Outcome]:
    """Run the programs of a file, or a program, on a target."""
    name, case, target = job
    outcomes = []
    for program, run in SUITES[name][1](case, target):
        reason = ""
        try:
            status = run()
        except UnsupportedError as error:
            status, reason = "refused", error.message
        except AssertionError as error:
            status, reason = "wrong", _first_line(error)
        except Exception as error:  # whatever it is, it is that program's outcome
            status, reason = "failed", f"{type(error).__name__}: {_first_line(error)}"
        outcomes.append(Outcome(name, program, target, status, reason))
    return outcomes


def _first_line(error: Exception) -> str:
    text = error.message if isinstance(error, UnsupportedError) else str(error)
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)


# ── programs that say what they expect ──


def files(folder: str) -> Callable[[str, str], Judged]:
    """Return what yields the programs of a file of a folder."""

    def judged(case: str, target: str) -> Judged:
        for i, text in enumerate(programs.texts(programs.FOLDER / folder / f"{case}.mlir")):
            try:
                found = list(programs.functions(text))
            except UnsupportedError as error:
                yield f"{case}, text {i}", partial(_raised, error)
                continue
            for module, function in found:
                name = case if function.name == "main" else f"{case} @{function.name}"
                yield name, partial(checks, module, function, target)

    return judged


def _raised(error: Exception) -> str:
    raise error


def checks(module: Any, function: Any, target: str) -> str:
    """Return what the checks of a program come to, the worst of them."""
    worst = "right"
    for check, made, wanted in programs.compared(module, function, target == "cpu"):
        status = programs.verdict(check, made, wanted)
        assert status != "wrong", f"{made.reshape(-1)[:3]} where {wanted.reshape(-1)[:3]} is wanted"
        worst = max(worst, status, key=RANKS.index)
    return worst


def complex_functions(case: str, target: str) -> Judged:
    """Yield a program of which what is normal is compared, within 16 steps in the last place."""

    def run() -> str:
        suite.test_functions_of_complex_numbers_are_right_where_all_is_normal(case)
        return "near"

    if target == "interpreter":
        yield case, run


def bytecode(case: str, target: str) -> Judged:
    """Yield the comparison of bytecode with its text, which has nothing to do with targets."""

    def run() -> str:
        versions.test_bytecode_says_what_its_text_says(case)
        return "right"

    if target == "interpreter":
        yield case, run


# ── programs beside jaxlib ──


def beside(of: str, close: float) -> tuple[Callable[[], list[str]], Callable[[str, str], Judged]]:
    """Return the names of programs of JAX, and what yields one of them.

    `of` is the module that has them; numbers may differ by `close`, if the program does not say.
    """

    def cases() -> Any:
        return import_module(f"{TESTS}.jaxlib.{of}").cases()

    def judged(case: str, target: str) -> Judged:
        def run() -> str:
            made = cases()[case]
            function, args, *tolerance = made() if callable(made) else made
            both = import_module(f"{TESTS}.jaxlib.exported").both
            return agreement(*both(function, args, target), *(tolerance or [close]))

        yield case, run

    return lambda: sorted(cases()), judged


def dynamic_names() -> list[str]:
    tests = import_module(f"{TESTS}.jaxlib.test_dynamic")
    return [n for n in tests.NAMES if n not in tests.UNFIT]


def dynamic(case: str, target: str) -> Judged:
    """Yield a program with open extents."""

    def run() -> str:
        ours, theirs = import_module(f"{TESTS}.jaxlib.test_dynamic").both(case, target)
        half = any(y.dtype.itemsize == 2 for y in theirs)
        return agreement(ours, theirs, 2e-2 if half else 1e-4)

    yield case, run


def agreement(ours: Sequence[Array], theirs: Sequence[Array], close: float) -> str:
    """Return how two lists of arrays agree, the worst of them."""
    assert len(ours) == len(theirs), f"{len(ours)} results of {len(theirs)}"
    worst = "right"
    for y, wanted in zip(ours, theirs, strict=True):
        kinds = (y.dtype, y.shape), (wanted.dtype, wanted.shape)
        assert kinds[0] == kinds[1], f"{kinds[0]} where {kinds[1]} is wanted"
        status = programs.verdict(programs.Check("check.expect_close", None, {}), y, wanted)
        if status == "wrong":
            wide = np.complex128 if y.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(y.astype(wide), wanted.astype(wide), close, close)
            status = "tolerated"
        worst = max(worst, status, key=RANKS.index)
    return worst


SUITES: dict[str, tuple[Callable[[], Sequence[str]], Callable[[str, str], Judged]]] = {
    "testdata": (lambda: suite.DATA, files("testdata")),
    "quantized": (lambda: suite.QUANTIZED, files("testdata/quantized")),
    "interpret": (lambda: suite.INTERPRET, files("tests/interpret")),
    "math": (lambda: suite.MATH, files("tests/math")),
    "complex": (lambda: suite.COMPLEX, complex_functions),
    "bytecode": (lambda: versions.READ, bytecode),
    "dynamic": (dynamic_names, dynamic),
    "functions": beside("functions", 2e-5),
    "nets": beside("nets", 1e-4),
}
"""The names of files or programs of each suite, and what yields the programs of one."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(SUITES), help="run this suite")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes; now %(default)s")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", default=PAGE, help="default: %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
