"""Run models of one operator, and suites, beside LiteRT, and write down what came out.

    python tools/conformance_tflite.py        everything; writes docs/conformance-tflite.md
    python tools/conformance_tflite.py --only floats --compiled 1

All are evaluated, and a share is compiled for the CPU, too, in worker processes.
"""

from __future__ import annotations

import argparse
import random
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

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.tflite.loading import load
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from conformance_tflite_page import Outcome, page, summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance-tflite.md"

# What the tests have for it, which are no package.
sys.path.insert(0, str(ROOT))
TESTS = "tests.frontends.tflite"
floats = import_module(f"{TESTS}.litert.test_probes")
integers = import_module(f"{TESTS}.litert.test_quantised_probes")
written = import_module(f"{TESTS}.litert.written")
structure = import_module(f"{TESTS}.litert.quantised_probes_structure")
stateful = (*floats.STATEFUL, *structure.STATEFUL)
glow = import_module(f"{TESTS}.test_glow_suite")

Job = tuple[str, str, str]
"""A suite, a family of it, and a rounding."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites, print what they came to, and write the page if all ran."""
    options = _parser().parse_args(arguments)
    outcomes: list[Outcome] = []
    begin = time.perf_counter()
    jobs = [j for j in all_jobs() if j[0] in (options.only or SUITES)]
    assert glow.NAMES or options.only, f"Glow's suite is not in {glow.FOLDER}"
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for job, made in zip(jobs, pool.map(partial(tried, options.compiled), jobs), strict=True):
            outcomes += made
            print(f"{' '.join(job)}: {len(made)}, {time.perf_counter() - begin:.0f} s", flush=True)
    print("\n".join(summary(outcomes)))
    if not options.only:
        versions = version("ai-edge-litert"), options.compiled
        options.page.write_text("\n".join(page(outcomes, *versions)) + "\n")
    for o in outcomes:
        if options.only and o.status not in ("equal", "none"):
            print(f"{o.suite}: {o.probe} ({o.target}): {o.status}: {o.reason}")
    return 0


def all_jobs() -> Iterator[Job]:
    """Yield what is to be done, the longest first."""
    for rounding in ROUNDINGS:
        for family in integers.FAMILIES:
            yield "integers", family.__name__, rounding
    for family in floats.FAMILIES:
        yield "floats", family.__name__, "xnnpack"
    for family in stateful:
        yield "states", family.__name__, "reference"
    for family in structure.STATEFUL:
        yield "states", family.__name__, "xnnpack"
    yield "glow", "", "xnnpack"


def tried(share: float, job: Job) -> list[Outcome]:
    """Run what a job is, a share of it compiled, too."""
    suite, family, rounding = job
    return list(SUITES[suite](family, rounding, share))


# ── models of one operator ──


def probes(suite: str, family: str, rounding: str, share: float) -> Iterator[Outcome]:
    """Yield what the probes of a family come to."""
    of = integers if suite == "integers" else floats
    (draws,) = (f for f in of.FAMILIES if f.__name__ == family)
    integers.RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state
    compiled = random.Random(family)
    for probe in draws():
        outcome = partial(Outcome, suite, probe.kind, rounding, str(probe))
        found = integers.oracle(probe, rounding) if of is integers else _of_floats(probe)
        targets = ("interpreter", "cpu") if compiled.random() < share else ("interpreter",)
        for target in targets:
            if found is None:
                yield outcome(target, "none", "")
                continue
            model, wanted = found
            yield outcome(target, *judged(model, probe, wanted, rounding, target))


def _of_floats(probe: Any) -> tuple[bytes, list[Array]] | None:
    wanted = floats.oracle(probe)
    if wanted is None:
        return None
    return written.written(probe, [w.shape for w in wanted]), wanted


def judged(
    model: bytes, probe: Any, wanted: list[Array], rounding: str, target: str
) -> tuple[str, str]:
    """Return what a probe comes to on a target, and why."""
    try:
        graph = load(model, rounding=rounding)
        if target == "interpreter" and isinstance(graph, Graph):
            feeds = dict(zip(graph.inputs, probe.inputs(), strict=True))
            made = list(evaluate(graph, feeds).values())
        else:
            made = floats.listed(ag.compile(graph, target=target)(*probe.inputs()))
    except UnsupportedError as error:
        return "refused", error.message
    except Exception as error:  # whatever it is, it is that probe's outcome
        return "failed", f"{type(error).__name__}: {error}"
    said = floats.wrong(made, wanted)
    if said and probe.off and not floats.wrong(made, integers.near(made, wanted, probe.off)):
        return "near", said
    return ("wrong", said) if said else ("equal", "")


def states(family: str, rounding: str, share: float) -> Iterator[Outcome]:
    """Yield what layers with a state come to in calls one after the other; all are compiled."""
    (draws,) = (f for f in stateful if f.__name__ == family)
    numbers = np.random.default_rng(1)
    for probe in draws():
        feeds = [
            [floats.drawn_like(v, numbers) for v in probe.inputs()] for _ in range(floats.STEPS)
        ]
        wanted = written.run_steps(written.written(probe), feeds, rounding == "reference")
        model = written.written(probe, [w.shape for w in wanted[0]])
        outcome = partial(Outcome, "states", probe.kind, rounding, str(probe), "cpu")
        try:
            session = ag.compile(model, rounding=rounding).session()
            made = [floats.listed(session(*x)) for x in feeds]
        except Exception as error:  # whatever it is, it is that probe's outcome
            yield outcome("failed", f"{type(error).__name__}: {error}")
            continue
        said = "; ".join(filter(None, map(floats.wrong, made, wanted)))
        yield outcome("wrong", said) if said else outcome("equal", "")


# ── Glow's suite ──


def stored(family: str, rounding: str, share: float) -> Iterator[Outcome]:
    """Yield what Glow's models with stored outputs come to; all are compiled."""
    for name in glow.NAMES:
        outcome = partial(Outcome, "glow", name, rounding, name, "cpu")
        if name in glow.WITHOUT_OUTPUTS:
            yield outcome("none", "")
            continue
        try:
            glow.test_a_model_gives_the_outputs_that_are_stored(name)
        except Exception as error:  # whatever it is, it is that model's outcome
            yield outcome("wrong", f"{type(error).__name__}: {error}")
            continue
        yield outcome("equal", "")


SUITES: dict[str, Callable[[str, str, float], Iterator[Outcome]]] = {
    "floats": partial(probes, "floats"),
    "integers": partial(probes, "integers"),
    "states": states,
    "glow": stored,
}
"""What yields the outcomes of a family of each suite."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(SUITES), help="run this suite")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes; now %(default)s")
    parser.add_argument(
        "--compiled", type=float, default=0.2, metavar="SHARE",
        help="what share is compiled, too; now %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--page", type=Path, metavar="FILE", default=PAGE, help="default: %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
