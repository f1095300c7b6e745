"""One model under all of its settings, next to whoever else can run it.

The reference is our interpreter on the graph as it was imported: it gives the same precision and
the same rounding of integers, so it is compared with closely.  That the import and the interpreter
are right is what the oracles say (`oracles`), once for each choice of feeds.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base import knobs
from alpenglow.base.errors import AlpenglowError, FeedError, UnsupportedError
from alpenglow.debug.failure import place
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel
from alpenglow.ir.types import FLOATS, NAMES
from alpenglow.machines.cpu import emit
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.proof import ProofWarning
from alpenglow.measure import tune
from alpenglow.passes.choices import Record
from alpenglow.program import Program

from . import aside, cc, draws, guard, guarded
from .noise import largest, widest, wrong
from .oracles import Oracle, oracle
from .reference import Reference, flat, loaded
from .settings import Setting

Array = NDArray[Any]
Feeds = Mapping[str, Array]

TIMES = {"strict": 8.0, "fast": 16.0}
"""How many times what rounding may do is allowed."""

WINOGRAD = 2e-5
"""How wrong an element may be besides, under `fast`, relative to the largest: Winograd's way adds
and subtracts what is up to a hundred times as large as the result."""

PLAIN = 8.0
"""So many units in the last place of the largest element need no explanation."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, under which setting; two are the same if these two are."""

    engine: str
    what: str
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.engine}: {self.what}" + (f": {self.message}" if self.message else "")


@dataclass(slots=True)
class Verdict:
    """What became of a model: `ran` says it of each setting, `oracles` who confirmed the results.

    A word of `ran` is same, refused (both do), unsupported, or the kind that it was set aside for.
    """

    problems: list[Problem] = field(default_factory=list)
    ran: dict[str, str] = field(default_factory=dict)
    oracles: dict[str, str] = field(default_factory=dict)
    declined: str = ""
    feeding: int = 0

    @property
    def confirmed(self) -> bool:
        """Whether somebody else has run the model, and did not contradict."""
        return any(how in aside.FOR_US for how in self.oracles.values())


class Trial:
    """A model, its feeds, and what it gave so far."""

    def __init__(
        self, model: bytes, feedings: Sequence[Feeds], settings: Sequence[Setting],
        peers: Sequence[str] = (), strange: Sequence[int] = (), shared: bool = False,
    ) -> None:  # fmt: skip
        """Prepare to judge; if `shared`, settings share the feeds of other extents among them."""
        self.model, self.feedings, self.strange = model, feedings, strange
        self.settings, self.peers, self.shared = settings, peers, shared
        self.verdict = Verdict()
        self.references: dict[int, Reference | AlpenglowError] = {}
        self.programs: dict[Setting, Program] = {}

    def run(self) -> None:
        """Judge all settings but those in C, whose programs are left in `programs`."""
        try:
            self.graph = self._loaded()
            self.fixed = self._fixed()
        except UnsupportedError as error:
            self.verdict.declined = str(error)
            return
        except Exception as error:
            if self._is_fixed():
                self.verdict.declined = f"holds for one extent only: {error}"
            else:
                self._found("load", place(error), error)
            return
        for number in range(len(self.feedings)):
            self._expect(number)
        if self.verdict.problems or 0 not in self.references:
            return
        for setting in self.settings:
            self._try(setting)
        if self.peers and not self.verdict.problems:
            self._ask()

    def run_c(self, setting: Setting, library: cc.Library, number: int) -> None:
        """Judge a setting in C; the model is this number of the library."""
        self._judge(setting, partial(library.run, number))

    # ── what is expected ──

    def _loaded(self, feeds: Feeds | None = None) -> Graph | StagedModel:
        """Import the model; for the very extents of feeds, if there are any."""
        return ag.load(self.model) if feeds is None else loaded(self.model, feeds)

    def _fixed(self) -> Graph | StagedModel:
        is_staged = isinstance(self.graph, StagedModel)
        if is_staged or any(v.type.symbols() for v in self.graph.inputs.values()):
            return self._loaded(self.feedings[0])
        return self.graph

    def _is_fixed(self) -> bool:
        """Whether a model is refused at all other extents than its first: its symbols are numbers.

        A recipe may have drawn the very number that stands for a symbol.
        """
        others = [f for f in self.feedings if _shapes(f) != _shapes(self.feedings[0])]
        for feeds in others:
            try:
                self._loaded(feeds)
                return False
            except AlpenglowError:
                continue
        return bool(others)

    def _expect(self, number: int) -> None:
        feeds = self.feedings[number]
        same = _shapes(feeds) == _shapes(self.feedings[0])
        try:
            graph = self.fixed if same else self._loaded(feeds)
            self.references[number] = Reference(graph, feeds)
        except UnsupportedError as error:
            if not number:
                self.verdict.declined = str(error)
        except AlpenglowError as error:
            self.references[number] = error
            # What data make impossible, everybody has to refuse; but the operator's own error
            # behind it may be our mistake.
            blamed = error.__cause__ if isinstance(error.__cause__, AlpenglowError) else error
            if not number and not isinstance(blamed, FeedError):
                self._found("evaluate", place(error), error)
        except MemoryError:
            return
        except Exception as error:
            self.verdict.feeding = number
            self._found("evaluate", place(error), error)

    def _found(self, engine: str, what: str, error: Exception | str) -> None:
        self.verdict.problems.append(Problem(engine, what, str(error).partition("\n")[0]))

    # ── settings ──

    def _try(self, setting: Setting) -> None:
        try:
            if setting.is_c:
                if isinstance(self.fixed, Graph):
                    self.programs[setting] = cc.program(self.fixed, setting.numerics)
                return
            with (
                _proved(),
                _level(setting.level),
            ):
                exe = self._compiled(setting)
                self._judge(setting, partial(guarded.run if setting.fenced else guard.run, exe))
        except UnsupportedError:
            self.verdict.ran[str(setting)] = "unsupported"
        except Exception as error:
            self._found(str(setting), place(error), error)

    def _compiled(self, setting: Setting) -> ag.Executable:
        graph = self.graph if setting.extents == "open" else self.fixed
        target = described(setting)
        options = ag.Options(numerics=setting.numerics, precision=setting.precision)
        if setting.tuned:
            record = random_record(graph, target, options, setting.tuned)
            options = replace(options, tuning=record)
        exe = ag.compile(graph, target, setting.threads, options=options)
        if setting.way != "archive":
            return exe
        if exe.is_open:  # what calls lead to is what is saved
            for number in self._meant_for(setting):
                with suppress(AlpenglowError):
                    exe.run(self.feedings[number])
        with tempfile.TemporaryDirectory(prefix="alpenglow-fuzz-") as folder:
            exe.save(Path(folder) / "model.ago")
            return ag.open(Path(folder) / "model.ago", setting.threads)

    def _judge(self, setting: Setting, run: Any) -> None:
        """Run a setting on all feeds that it takes, and compare."""
        words = []
        for number, reference in self.references.items():
            if number in self._meant_for(setting):
                words.append(self._ran(setting, number, reference, run))
                if words[-1] == "wrong":
                    self.verdict.feeding = number
                    return
        odd = [w for w in words if w not in ("same", "refused")]
        self.verdict.ran[str(setting)] = odd[0] if odd else "same"

    def _meant_for(self, setting: Setting) -> list[int]:
        """Return the numbers of the feeds that a setting is run on.

        What is compiled once is run on all that fit; for other extents there is more to compile.
        """
        if setting.precision != "f32":
            return [0]  # strange numbers overflow, and decisions fall otherwise
        numbers = range(len(self.feedings))
        fitting = [n for n in numbers if _shapes(self.feedings[n]) == _shapes(self.feedings[0])]
        others = [n for n in numbers if n not in fitting]
        if setting.extents == "fixed" or not others:
            return fitting
        if not self.shared:
            return [*fitting, *others]
        k = self.settings.index(setting)
        return [*fitting, *(n for i, n in enumerate(others) if i % 3 == k % 3)]

    def _ran(
        self, setting: Setting, number: int, reference: Reference | AlpenglowError, run: Any
    ) -> str:
        refused = isinstance(reference, AlpenglowError)
        try:
            actual = flat(run(self.feedings[number]))
        except AlpenglowError as error:
            if refused or number:
                # Open extents are taken to be as large as what is cut out of them.
                return "refused" if refused else "refused open"
            self._found(str(setting), place(error), error)
            return "wrong"
        except Exception as error:
            self._found(str(setting), place(error), error)
            return "wrong"
        if isinstance(reference, AlpenglowError):
            self._found(str(setting), "accepts", f"what is refused otherwise: {reference}")
            return "wrong"
        how, what = compared(reference, actual, setting)
        if what:
            self._found(str(setting), "differs", what)
        return how

    # ── oracles ──

    def _ask(self) -> None:
        """Let others run the model on the feeds that are not strange."""
        model = onnx.load_model_from_string(self.model)
        is_random = draws.is_random(model)
        asked: dict[str, Oracle | None] = {}
        for number, reference in self.references.items():
            if number in self.strange:
                continue
            if isinstance(reference, AlpenglowError):
                if not number:
                    self._ask_who_refuses(reference)
                continue
            if number and any(not a.size for a in self.feedings[number].values()):
                continue  # ONNX Runtime dies of some operators on nothing
            if is_random:
                told = self._told_of_draws(model, reference)
            else:
                told = dict(told_by(self.peers, asked, self.model, reference))
            objections = [(k, what) for k, (how, what) in told.items() if how == "contradicted"]
            if any(how in aside.FOR_US for how, _ in told.values()):
                # Two against one.
                told |= {k: ("outvoted", "") for k, _ in objections}
            elif objections:
                self.verdict.feeding = number
                for name, what in objections:
                    self._found(name, "differs", what)
            self.verdict.oracles |= {k: how for k, (how, _) in told.items()}

    def _ask_who_refuses(self, error: AlpenglowError) -> None:
        """Find who computes what we refuse: ONNX Runtime's word is enough for that."""
        runs = oracle("onnxruntime", self.model) if "onnxruntime" in self.peers else None
        if runs is None:
            return
        if runs.run(self.feedings[0]) is None:
            self.verdict.oracles["onnxruntime"] = "same"
        else:
            self._found("onnxruntime", "accepts", f"what we refuse: {error}")

    def _told_of_draws(
        self, model: onnx.ModelProto, reference: Reference
    ) -> dict[str, tuple[str, str]]:
        """Return what is said of random numbers and, of what is made of them, by oracles."""
        try:
            parted = draws.parted(model, reference)
        except draws.Odd as error:
            return {"draws": ("contradicted", str(error))}
        if parted is None:
            return {}
        if parted.rest is None:
            return {"draws": (parted.word, "")}
        content, feeds = parted.rest.model.SerializeToString(), parted.rest.feeds
        rest = Reference(loaded(content, feeds), feeds)
        apart = sorted(
            k
            for k, y in rest.expected.items()
            if k in reference.expected and not is_near(reference.expected[k], y)
        )
        if apart:
            return {"draws": ("contradicted", f"'{apart[0]}' depends on where numbers are drawn")}
        return dict(told_by(self.peers, {}, content, rest))


def told_by(
    peers: Sequence[str], asked: dict[str, Oracle | None], model: bytes, reference: Reference
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what oracles say of results, until one is of our opinion."""
    for name in peers:
        if name not in asked:
            asked[name] = oracle(name, model)
        who = asked[name]
        results = None if who is None else who.run(reference.feeds)
        if results is None:
            continue
        try:
            how, what = aside.weighed(model, reference, results, name)
        except Exception as error:  # a mistake of the judge, which is to be seen as such
            how, what = "contradicted", f"cannot be compared: {type(error).__name__}: {error}"
        yield name, (how, what)
        if how == "same":
            return


def compared(
    reference: Reference, actual: Mapping[str, Array], setting: Setting
) -> tuple[str, str]:
    """Return how a result compares: a word for the log, and what is wrong, "" if nothing is."""
    times = TIMES[setting.numerics]
    how = "same"
    for name, y in reference.expected.items():
        if name not in actual:
            return "wrong", f"output '{name}' is missing"
        if is_near(y, actual[name]):
            continue
        allowed = reference.slack(6, setting.precision)
        if y.shape != actual[name].shape and np.isinf(allowed[name]).all() and y.size:
            how = "torn"  # with noise it has another shape, too
            continue
        problem = wrong(y, actual[name], allowed[name], times)
        if problem:
            # The noise may have missed what is a tie: try harder before saying so.
            allowed = reference.slack(60, setting.precision)
            room = allowed[name]
            if setting.numerics == "fast" and NAMES.get(y.dtype) in FLOATS:
                room = room + WINOGRAD / times * largest(widest(y))
            problem = wrong(y, actual[name], room, times)
        if problem:
            kind = aside.explained(reference, name, actual[name], allowed[name], setting)
            if not kind:
                return "wrong", f"output '{name}': {problem}"
            how = kind
        elif aside.is_torn(y, actual[name], allowed[name]):
            how = "torn"
    return how, ""


def is_near(expected: Array, actual: Array) -> bool:
    """Whether two results are so near each other that nothing needs to be explained."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.tobytes() == actual.tobytes():
        return True
    nothing = np.zeros(expected.shape)
    return not wrong(expected, actual, nothing, PLAIN / 4)


def random_record(
    g: Graph | StagedModel, target: ag.Target, options: ag.Options, seed: int
) -> Record:
    """Return a record that takes any of the ways there are for each problem of a graph."""
    rng = np.random.default_rng(seed)
    if isinstance(g, StagedModel):
        return Record()
    found = {}
    for text, met in tune.problems(g, target, options).items():
        ways = list(tune.ways(met))
        found[text] = ways[int(rng.integers(len(ways)))]
    return Record(found)


def described(setting: Setting) -> ag.Target:
    """Return the target of a setting: threads share even what is too small to be worth it, and the
    cache is as small as the setting says."""
    target = ag.Target.parse(setting.machine)
    facts = target.facts
    if setting.threads > 1:
        facts = replace(facts, serial=0)
    if setting.cache:
        facts = replace(facts, cache=setting.cache)
    return replace(target, facts=facts)


@contextmanager
def _proved() -> Iterator[None]:
    """Let a kernel that is not proved to stay within its operands be an error: it would not run,
    and what takes its place would hide what is wrong with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProofWarning)
        yield


@contextmanager
def _level(level: int) -> Iterator[None]:
    """Let kernels be compiled at a level of LLVM: what is made lazily, too."""
    before = emit.assemble

    def at_level(ir_text: str, target: ag.Target) -> bytes:
        return assemble(ir_text, target, opt=level)

    emit.assemble = at_level
    try:
        yield
    finally:
        emit.assemble = before


@contextmanager
def _uncached() -> Iterator[None]:
    """Let compilations keep nothing on disk: there is nothing that will be compiled again."""
    before = knobs.cache_folder
    knobs.cache_folder = lambda: None
    try:
        yield
    finally:
        knobs.cache_folder = before


def _shapes(feeds: Feeds) -> dict[str, tuple[int, ...]]:
    return {k: a.shape for k, a in feeds.items()}


# ── models by themselves, and many at once ──


def judge(
    model: bytes, feedings: Sequence[Feeds], settings: Sequence[Setting],
    peers: Sequence[str] = (), strange: Sequence[int] = (),
) -> Verdict:  # fmt: skip
    """Run a model under settings, for each choice of feeds, and let `peers` confirm the results.

    Those of `feedings` that are `strange` by number are no matter for peers.
    """
    (verdict,) = judge_all([Trial(model, feedings, settings, peers, strange)])
    return verdict


def judge_all(trials: Sequence[Trial]) -> list[Verdict]:
    """Judge models; what is C of them is compiled together."""
    with np.errstate(all="ignore"), _uncached():
        for trial in trials:
            trial.run()
        for setting in dict.fromkeys(s for t in trials for s in t.programs):
            _in_c(setting, {i: t for i, t in enumerate(trials) if setting in t.programs})
    return [t.verdict for t in trials]


def _in_c(setting: Setting, trials: Mapping[int, Trial]) -> None:
    """Build one library of the programs for a setting, and run each; where it fails, one each."""
    try:
        with _proved():
            library = cc.Library({i: t.programs[setting] for i, t in trials.items()}, setting)
    except Exception as error:
        if len(trials) > 1:
            for i, t in trials.items():
                _in_c(setting, {i: t})
            return
        for t in trials.values():
            if isinstance(error, UnsupportedError):
                t.verdict.ran[str(setting)] = "unsupported"
            else:
                t._found(str(setting), place(error), error)
        return
    for i, t in trials.items():
        t.run_c(setting, library, i)
