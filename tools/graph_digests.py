"""Digests of the graphs that the front ends make, to show what a change of a front end changed.

    python tools/graph_digests.py record before.txt        # at the commit before
    python tools/graph_digests.py compare before.txt       # at the commit after
    python tools/graph_digests.py text "onnx test_abs"     # what a digest is of

A line is the format, the model's name, `graph`, `staged` or `refused`, and a SHA-256: of the text
of the graph; of the texts of all parts and actions, in the order of their import; of the error.
Models are ONNX's node tests, the networks in `.models`, the exported programs of PyTorch in
`tests`, and the suites where `ALPENGLOW_SUITES` says, or in `.models/suites`.  Staged models are
run in the interpreter where there are inputs; of others the first part counts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.frontends.onnx import load as load_onnx
from alpenglow.frontends.stablehlo.loading import loaded
from alpenglow.frontends.stablehlo.reading import Source
from alpenglow.ir.staged import Action, Apply, Loop, Part, Scan, StagedModel
from alpenglow.ir.text import print_graph

ROOT = Path(__file__).parents[1]
MODELS = ROOT / ".models"
SUITES = Path(os.environ.get("ALPENGLOW_SUITES", MODELS / "suites"))
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

Load = Callable[[], "ag.Graph | StagedModel"]


@dataclass(frozen=True)
class Model:
    """A model of a format, how it is loaded, and arrays for its inputs if there are any."""

    format: str
    name: str
    load: Load
    feeds: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.format} {self.name}"


# ── the models ──


def models() -> Iterator[Model]:
    """Yield all models that are here."""
    yield from node_tests()
    for format, suffix in (("onnx", "*.onnx"), ("tflite", "*.tflite")):
        yield from files(format, MODELS, suffix)
    yield from files("torch", ROOT / "tests" / "frontends" / "torch" / "files", "*.pt2")
    yield from files("tflite", SUITES / "glow" / "tfliteModels", "*.tflite")
    yield from stablehlo_suite(SUITES / "stablehlo")


def node_tests() -> Iterator[Model]:
    """Yield ONNX's node tests, with the inputs of each."""
    for test in import_module("node_cases").models():
        feeds = None
        for inputs, _ in test.data_sets[:1]:
            names = [i.name for i in test.model.graph.input]
            feeds = dict(zip(names, inputs, strict=False))
        yield Model("onnx", test.name, partial(load_onnx, test.model), feeds)


def files(format: str, folder: Path, pattern: str) -> Iterator[Model]:
    """Yield the models of a folder, however deep."""
    for path in sorted(folder.rglob(pattern)):
        yield Model(format, str(path.relative_to(folder)), partial(ag.load, path))


def stablehlo_suite(folder: Path) -> Iterator[Model]:
    """Yield the programs of StableHLO's suites, their checks as outputs."""
    programs = import_module("tests.frontends.stablehlo.programs")

    def load(text: str, number: int) -> ag.Graph | StagedModel:
        module, function = list(programs.functions(text))[number]
        main, _ = programs.checked(function)
        return loaded(programs.with_main(module, main), Source(b"", "program"))

    for path in sorted(folder.rglob("*.mlir")):
        for part, text in enumerate(programs.texts(path)):
            try:
                count = len(list(programs.functions(text)))
            except AlpenglowError:
                count = 1  # the error is what `load` raises
            for number in range(count):
                name = f"{path.relative_to(folder)}#{part}.{number}"
                yield Model("stablehlo", name, partial(load, text, number), {})


# ── their texts ──


def text_of(model: Model) -> tuple[str, str]:
    """Return the outcome of an import, and its text: of the graph, the parts or the error."""
    try:
        loaded = model.load()
    except AlpenglowError as error:
        told = f"{type(error).__name__}: {error}"
        return "refused", told.replace(f"{SUITES}/", "").replace(f"{ROOT}/", "")
    if isinstance(loaded, ag.Graph):
        return "graph", print_graph(loaded)
    texts = [repr(loaded)]
    with parts(loaded, texts):
        try:
            if model.feeds is not None:
                ag.compile(loaded, target="interpreter").run(model.feeds)
        except AlpenglowError as error:
            texts.append(f"{type(error).__name__}: {error}")
    return "staged", "\n".join(texts)


@contextmanager
def parts(model: StagedModel, texts: list[str]) -> Iterator[None]:
    """Add the text of the first part of a model, and of each that is imported meanwhile."""
    if model.first is not None:
        texts += of_part(model.first)
    cls: Any = next(c for c in type(model).__mro__ if "part" in vars(c))
    original = cls.part

    def part(self: StagedModel, rest: Any, known: Any) -> Part:
        made: Part = original(self, rest, known)
        texts.extend(of_part(made))
        return made

    cls.part = part
    try:
        yield
    finally:
        cls.part = original


def of_part(part: Part) -> Iterator[str]:
    """Yield the lines of a part: its graph, its actions, what the next one needs."""
    yield print_graph(part.graph)
    yield from map(of_action, part.actions)
    yield f"needs {part.needs}; ends {part.rest is None}"


def of_action(action: Action) -> str:
    """Return the line of an action; the parts of a body are lines of their own, as it is run."""
    match action:
        case Apply(label, op, inputs, outputs):
            return f"{label}: {op} {inputs} -> {outputs}"
        case Loop() | Scan():
            fields = {k: getattr(action, k) for k in action.__slots__ if k != "body"}
            return f"{type(action).__name__} {action.body!r} {fields}"


# ── the tool ──


def lines(wanted: str) -> Iterator[tuple[str, str]]:
    """Yield the names of models that hold a word, and what became of each."""
    for model in models():
        if wanted in str(model):
            kind, text = text_of(model)
            yield str(model), f"{kind} {hashlib.sha256(text.encode()).hexdigest()}"


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a line for each model that is not what it was."""
    told = []
    for name in sorted({*before, *now}):
        was, is_ = before.get(name, "not here -"), now.get(name, "not here -")
        kinds = [line.rsplit(" ", 1)[0] for line in (was, is_)]
        if was != is_:
            change = "another text" if kinds[0] == kinds[1] else " -> ".join(kinds)
            told.append(f"{name}: {change}")
    return told


def read(path: Path) -> dict[str, str]:
    """Read what `record` wrote."""
    pairs = (line.rsplit(" ", 2) for line in path.read_text().splitlines())
    return {name: f"{kind} {digest}" for name, kind, digest in pairs}


def main() -> int:
    parser = argparse.ArgumentParser(description="Digests of the graphs that the front ends make.")
    parser.add_argument("command", choices=["record", "compare", "text"])
    parser.add_argument("what", help="the file of digests, or the name of a model")
    parser.add_argument("--only", default="", metavar="WORD", help="in the format and name")
    options = parser.parse_args()
    if options.command == "text":
        named = [model for model in models() if str(model) == options.what]
        if not named:
            parser.error(f"there is no model '{options.what}'; `record` writes the names of all")
        print(*text_of(named[0]), sep="\n")
        return 0
    path = Path(options.what)
    if options.command == "compare" and not path.is_file():
        parser.error(f"there is no file {path}; `record` writes it at the commit before")
    found = dict(lines(options.only))
    if options.command == "record":
        path.write_text("".join(f"{name} {line}\n" for name, line in found.items()))
        counts = [line.split(" ")[0] for line in found.values()]
        print(", ".join(f"{counts.count(k)} {k}" for k in sorted(set(counts))))
        return 0
    before = {name: line for name, line in read(path).items() if options.only in name}
    told = compare(before, found)
    print(*told, f"{len(told)} of {len({*before, *found})} models differ", sep="\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
