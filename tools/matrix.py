"""Run every feature on small models from every source, and write the page of what works.

    python tools/matrix.py              # all cells, to docs/matrix.md
    python tools/matrix.py --sample     # a few cells; the exit code tells if one is wrong

A cell is right (the results are those of the interpreter), refused (an error of `base.errors`; its
message is below the table), not applicable, or wrong: other results, or another exception.
Sources that need PyTorch are left out where that is not installed.
"""

from __future__ import annotations

import argparse
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import alpenglow as ag
import matrix_models
from alpenglow import train
from alpenglow.base.errors import AlpenglowError
from alpenglow.cli import cli
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel
from matrix_models import Model

PAGE = Path(__file__).parents[1] / "docs" / "matrix.md"


class Inapplicable(Exception):
    """A feature has nothing to do with a model; the message says why."""


@dataclass
class Subject:
    """A model from a source, its graph, and the results that are right."""

    model: Model
    folder: Path

    @cached_property
    def loaded(self) -> Graph | StagedModel:
        given = self.model.given
        return given if isinstance(given, Graph) else ag.load(given, **self.model.traced)

    @property
    def graph(self) -> Graph:
        if isinstance(self.loaded, StagedModel):
            raise Inapplicable("the graph depends on data")
        return self.loaded

    @property
    def path(self) -> Path:
        if not isinstance(self.model.given, Path):
            raise Inapplicable("the command line takes files")
        return self.model.given

    @cached_property
    def feeds(self) -> dict[str, Any]:
        return self.model.feeds(self.loaded, self.extents)

    @cached_property
    def expected(self) -> dict[str, Any]:
        return ag.compile(self.loaded, "interpreter").run(self.feeds)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Numbers for all dynamic dimensions; those that the exporter names are 4."""
        types = filter(None, matrix_models.types(self.loaded).values())
        return dict.fromkeys((s for t in types for s in t.symbols()), 4) | {**self.model.extents}

    def fixed(self) -> Graph:
        """Return the graph with fixed dimensions."""
        return self.graph.bind(self.extents)

    def check(self, results: Any, tolerance: float = 1e-4) -> None:
        """Raise AssertionError unless results by name are those expected."""
        assert list(results) == list(self.expected), f"outputs are {list(results)}"
        for name, wanted in self.expected.items():
            scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
            np.testing.assert_allclose(
                np.asarray(results[name], np.float64), np.asarray(wanted, np.float64),
                rtol=0, atol=tolerance * scale,
            )  # fmt: skip


Verb = Callable[[Subject], None]
VERBS: dict[str, Verb] = {}


def verb(name: str) -> Callable[[Verb], Verb]:
    """Add a feature to the table."""

    def add(function: Verb) -> Verb:
        VERBS[name] = function
        return function

    return add


@verb("compile")
def _compile(s: Subject) -> None:
    s.check(ag.compile(s.model.given, **s.model.traced).run(s.feeds))


@verb("compile, fixed")
def _compile_fixed(s: Subject) -> None:
    if not s.extents:
        raise Inapplicable("there is no dynamic dimension")
    s.check(ag.compile(s.fixed()).run(s.feeds))


@verb("save, open")
def _save(s: Subject) -> None:
    exe = ag.compile(s.loaded)
    exe.run(s.feeds)
    exe.save(s.folder / "model.ago")
    s.check(ag.open(s.folder / "model.ago").run(s.feeds))


@verb("pickle")
def _pickle(s: Subject) -> None:
    s.check(pickle.loads(pickle.dumps(ag.compile(s.loaded))).run(s.feeds))


@verb("submit")
def _submit(s: Subject) -> None:
    s.check(ag.compile(s.loaded).submit(s.feeds).result())


@verb("host")
def _host(s: Subject) -> None:
    with ag.Host([ag.Worker("a", ag.Target.parse("cpu"), threads=1)]) as host:
        host.add_model("model", s.loaded)
        s.check(host.run("model", s.feeds))


@verb("place")
def _place(s: Subject) -> None:
    graph = s.fixed()
    workers = [ag.Worker(n, ag.Target.parse("cpu")) for n in ("a", "b")]
    placement = ag.place(graph, workers, "throughput", measure=False)
    s.check(ag.placed(graph, placement).run(s.feeds))


@verb("session")
def _session(s: Subject) -> None:
    exe = ag.compile(s.loaded)
    s.check(exe.session(8 if exe.growing else None).run(s.feeds))


@verb("state")
def _state(s: Subject) -> None:
    if not s.model.state:
        raise Inapplicable("no input holds what an output was")
    exe = ag.compile(s.loaded, state=s.model.state)
    (past, present) = next(iter(s.model.state.items()))
    session = exe.session(length=16)
    feeds = {n: x for n, x in s.feeds.items() if n not in s.model.state}
    session.variables[past] = s.feeds[past]
    results = session.run(feeds)
    s.check({n: session.variables[past] if n == present else results[n] for n in s.expected})


@verb("memory limit")
def _memory(s: Subject) -> None:
    s.check(ag.compile(s.fixed(), memory="1MB").run(s.feeds))


@verb("bf16")
def _bf16(s: Subject) -> None:
    s.check(ag.compile(s.loaded, precision="bf16").run(s.feeds), 0.1)


def _profile(s: Subject) -> ag.Profile:
    return ag.profile_ranges(s.graph, [s.feeds])


@verb("profile-ranges")
def _profile_ranges(s: Subject) -> None:
    assert _profile(s).samples == 1


@verb("quantize")
def _quantize(s: Subject) -> None:
    s.check(ag.compile(ag.quantize(s.graph, _profile(s))).run(s.feeds), 0.25)


@verb("weights only")
def _weights_only(s: Subject) -> None:
    options = ag.QuantOptions(weights_only="int8")
    s.check(ag.compile(ag.quantize(s.graph, options=options)).run(s.feeds), 0.1)


@verb("train")
def _train(s: Subject) -> None:
    output, y = next(iter(s.expected.items()))
    graph = train.supervise(ag.trainable(s.fixed(), statistics="running"), "mse", output)
    trainer = train.Trainer(graph, "loss", train.SGD(0.0))
    trainer.step({**s.feeds, "labels": np.asarray(y, np.float32)})
    s.check(ag.compile(trainer.trained()).run(s.feeds), 1e-3)


@verb("gradient")
def _gradient(s: Subject) -> None:
    graph = s.fixed().copy()
    reals = [n for n, v in graph.callers_inputs().items() if v.type.dtype == "f32"]
    if not reals:
        raise Inapplicable("no input is f32")
    y = next(iter(graph.outputs.values()))
    (dx,) = ag.gradients(graph, y, [graph.inputs[reals[0]]])
    graph.output("gradient of the matrix", dx)
    results = ag.compile(graph).run(s.feeds)
    wanted = ag.compile(graph, "interpreter").run(s.feeds)["gradient of the matrix"]
    scale = max(1.0, float(np.abs(wanted).max()))
    found = results.pop("gradient of the matrix")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * scale)


@verb("truncate")
def _truncate(s: Subject) -> None:
    names = [v.name for n in s.graph.nodes for v in n.results if v.name]
    assert names, "no value has a name"
    ag.compile(ag.truncate(s.graph, names[-1])).run(s.feeds)


@verb("export ONNX")
def _export(s: Subject) -> None:
    model = ag.export_onnx(s.graph).SerializeToString()
    results = ag.compile(model).run(s.feeds)
    s.check({n: results[n] for n in s.expected})  # without what variables become


def _bundle(format: str) -> Verb:
    def write(s: Subject) -> None:
        target = "wasm32" if format == "wasm" else "cpu"
        ag.bundle(s.fixed(), s.folder / f"bundle-{format}", format=format, target=target)

    return write


for _format in ("object", "c", "shared", "wheel", "wasm"):
    VERBS[f"bundle, {_format}"] = _bundle(_format)


def _command(line: str) -> Verb:
    def run(s: Subject) -> None:
        np.savez(s.folder / "feeds.npz", **s.feeds)
        dims = ",".join(f"{n}={d}" for n, d in s.extents.items())
        words = line.format(model=s.path, out=s.folder, dims=f"--dim {dims}" if dims else "")
        result = CliRunner().invoke(cli, words.split())
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        if result.exit_code:
            message = result.stderr.strip()
            assert message.startswith("error: "), f"exit code {result.exit_code}: {message}"
            first, _, hint = message.removeprefix("error: ").partition("\n  try: ")
            raise AlpenglowError(re.sub(r"\s+\(/.*\)$", "", first), hint=hint)

    return run


VERBS |= {
    "`show`": _command("show {model} {dims}"),
    "`run`": _command("run {model} --feeds {out}/feeds.npz"),
    "`verify`": _command("verify {model} --feeds {out}/feeds.npz --tolerance 1e-3"),
    "`bench`": _command("bench {model} {dims} --seconds 0.05"),
    "`profile`": _command("profile {model} {dims}"),
    "`convert`": _command("convert {model} {dims} -o {out}/converted.onnx"),
    "`tune`": _command("tune {model} {dims} -o {out}/tuned.txt"),
}

SAMPLE = ("compile", "save, open", "profile-ranges", "quantize", "truncate")
"""The features of the sample; they are run on the models that `matrix_models` calls small."""


@dataclass(frozen=True)
class Cell:
    """What came of a feature on a model: right, refused, n/a or wrong, and the words for it."""

    kind: str
    words: str = ""


def judged(subject: Subject, name: str) -> Cell:
    """Run a feature on a model."""
    try:
        VERBS[name](subject)
    except Inapplicable as why:
        return Cell("n/a", str(why))
    except AlpenglowError as error:
        hint = f"; try: {error.hint}" if error.hint else ""
        return Cell("refused", " ".join(f"{error.message}{hint}".split()))
    except AssertionError as error:
        return Cell("WRONG", " ".join(str(error).split())[:200])
    except Exception as error:
        return Cell("WRONG", f"{type(error).__name__}: {error}"[:200])
    return Cell("right")


def subjects(sample: bool, folder: Path) -> Iterator[Subject]:
    """Yield the models that can be made here."""
    for model in matrix_models.models(folder, with_torch=find_spec("torch") is not None):
        if not sample or model.is_small:
            place = folder / f"{model.source} {model.name}".replace(" ", "-")
            place.mkdir()
            yield Subject(model, place)


def page(table: dict[str, dict[str, Cell]]) -> str:
    """Return the page: a row for each feature, a column for each model, and the reasons."""
    names = list(table)
    reasons: dict[str, int] = {}
    lines = []
    for feature in next(iter(table.values())):
        cells = [table[name][feature] for name in names]
        marks = []
        for cell in cells:
            number = reasons.setdefault(cell.words, len(reasons) + 1) if cell.words else 0
            marks.append(f"{cell.kind}{f' [{number}]' if number else ''}")
        lines.append(f"| {feature} | {' | '.join(marks)} |")
    head = f"| feature | {' | '.join(names)} |"
    told = [f"{number}. {words}" for words, number in reasons.items()]
    return "\n".join([*HEAD, "", head, "|---" * (len(names) + 1) + "|", *lines, "", "## Reasons",
                      "", *told, ""])  # fmt: skip


HEAD = [
    "# Features by source of the model",
    "",
    "*Reference, generated by `tools/matrix.py`.*  Each cell is a feature on a small model: right",
    "(the results are those of the interpreter), refused by an error that says why, or not",
    "applicable.  `make matrix` makes the page where PyTorch is installed, too; without PyTorch",
    "its columns are left out.",
]


def main() -> int:
    """Run the cells; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true", help="a few cells, and no page")
    sample = parser.parse_args().sample
    table: dict[str, dict[str, Cell]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for subject in subjects(sample, Path(folder)):
            column = f"{subject.model.source}: {subject.model.name}"
            table[column] = {n: judged(subject, n) for n in (SAMPLE if sample else VERBS)}
            for name, cell in table[column].items():
                if cell.kind == "WRONG" or sample:
                    print(f"{column}: {name}: {cell.kind} {cell.words}", flush=True)
    if not sample:
        PAGE.write_text(page(table), encoding="utf-8")
    return int(any(c.kind == "WRONG" for column in table.values() for c in column.values()))


if __name__ == "__main__":
    sys.exit(main())
