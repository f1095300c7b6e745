"""Networks that a host runs: steps, one after another, and the values that pass between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import OptionError
from alpenglow.base.words import shown
from alpenglow.ir.types import TensorType
from alpenglow.runtime.executables.executor import Executable

Types = dict[str, TensorType]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A part of a network: by the names of workers, the executables that compute it there.

    All have the same inputs and outputs, which are values of the network by their names.  Raises
    OptionError where they have not.
    """

    executables: Mapping[str, Executable]

    def __post_init__(self) -> None:
        if not self.executables:
            raise OptionError(
                "a step of a network has no executables, expected one or more by worker"
            )
        for worker, exe in self.executables.items():
            names = list(exe.inputs), list(exe.outputs)
            if names != (list(self.inputs), list(self.outputs)):
                raise OptionError(
                    f"a step is {_said(*names)} on worker {shown(worker)}, expected "
                    f"{_said(self.inputs, self.outputs)} as on {shown(self.workers[0])}"
                )

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self.executables)

    @property
    def inputs(self) -> Types:
        return next(iter(self.executables.values())).inputs

    @property
    def outputs(self) -> Types:
        return next(iter(self.executables.values())).outputs


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """What a host runs by `name` and `version`: steps, which read feeds and results of others.

    `outputs` are the values that a request returns, by default those of the last step.  Raises
    OptionError where a value has two sources, or two types, or an output has no source.
    """

    name: str
    version: int
    steps: tuple[Step, ...]
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise OptionError(f"a network is called {self.name!r}, expected a name")
        if isinstance(self.version, bool) or not isinstance(self.version, int):
            raise OptionError(f"the version of a network is {self.version!r}, expected a number")
        if not self.steps:
            raise OptionError(f"network {shown(self.name)} has no steps, expected 1 or more")
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "outputs", tuple(self.outputs or self.steps[-1].outputs))
        self._check()

    @staticmethod
    def whole(executable: Executable, workers: Iterable[str], version: int = 1) -> Network:
        """Return a network of one step, which the same executable runs on all of the workers."""
        step = Step(dict.fromkeys(workers, executable))
        return Network(executable.name, version, (step,), tuple(executable.outputs))

    def __str__(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def inputs(self) -> Types:
        """The types of what a request feeds: all that steps read and none before has computed."""
        fed: Types = {}
        computed: set[str] = set()
        for step in self.steps:
            fed.update({n: t for n, t in step.inputs.items() if n not in computed})
            computed.update(step.outputs)
        return fed

    def lasts(self) -> list[set[str]]:
        """Return, for each step, the names of the values that are needed after it."""
        needed = set(self.outputs)
        after = []
        for step in reversed(self.steps):
            after.append(set(needed))
            needed.update(step.inputs)
        return after[::-1]

    def _check(self) -> None:
        types: Types = {}
        computed: set[str] = set()
        for step in self.steps:
            for name, t in step.inputs.items():
                if not _agree(types.setdefault(name, t), t):
                    raise self._error(f"value {shown(name)} is read as {t}, expected {types[name]}")
            for name, t in step.outputs.items():
                if name in types:
                    what = "computed by two steps" if name in computed else "fed and computed"
                    raise self._error(f"value {shown(name)} is {what}, expected one source")
                types[name] = t
            computed.update(step.outputs)
        if unknown := [n for n in self.outputs if n not in computed]:
            missing = ", ".join(map(shown, unknown))
            raise self._error(f"outputs names {missing}, expected values that a step computes")

    def _error(self, problem: str) -> OptionError:
        return OptionError(f"network {shown(self.name)}: {problem}")


def _agree(a: TensorType | None, b: TensorType | None) -> bool:
    """Return False for types that no array has both of."""
    if a is None or b is None:  # a part that depends on data leaves it open
        return True
    if a.dtype != b.dtype or a.rank != b.rank:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(x == y for x, y in pairs if isinstance(x, int) and isinstance(y, int))


def _said(inputs: Iterable[str], outputs: Sequence[str] | Types) -> str:
    return f"{', '.join(inputs) or 'nothing'} -> {', '.join(outputs)}"
