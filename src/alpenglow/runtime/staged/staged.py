"""Executables of models that are imported in parts (see `ir.staged`).

A run goes through *stages*: a part of the model, compiled, and the actions that follow it
(`runtime.staged.runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.mapped import maps_of
from alpenglow.ir.staged import StagedModel
from alpenglow.ir.target import Target
from alpenglow.ir.types import TensorType
from alpenglow.machines.api import Artifact
from alpenglow.runtime.call import calls, feeds
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.call.feeds import Places
from alpenglow.runtime.call.values import value_of
from alpenglow.runtime.executables import describe
from alpenglow.runtime.executables.describe import Description
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.open_extents import own_passes
from alpenglow.runtime.executables.timing import Timings
from alpenglow.runtime.memory.layout import Layout
from alpenglow.runtime.session.held import Held
from alpenglow.runtime.staged.kept import StagedArchive
from alpenglow.runtime.staged.runner import Compile, Runner, recorded
from alpenglow.runtime.staged.stages import Record


class StagedExecutable(Executable):
    """A model whose graph depends on its data: it is compiled in parts, as these are met.

    `inputs` and `outputs` hold None where the model leaves a type open or it is no tensor's.
    `settings` say how parts are compiled, for an archive, which cannot be written without.
    """

    is_open = True

    def __init__(
        self,
        model: StagedModel,
        compile_: Compile,
        threads: int | None,
        target: Target,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            model.name, model.metadata, target, threads,
            cast("dict[str, TensorType]", model.inputs),
            cast("dict[str, TensorType]", model.outputs),
        )  # fmt: skip
        self._kinds = model.kinds
        self._fit: dict[str, Callable[[Any], Any]] = {
            n: partial(value_of, n, kind=model.kinds.get(n))
            if t is None
            else partial(feeds.fitting, n, t=t, dtype=t.numpy, shape=None)
            for n, t in model.inputs.items()
        }
        self._settings = settings
        self._runner = Runner(model, compile_, threads)
        constants = (v for v in model.constants.values() if isinstance(v, np.ndarray))
        self._files = maps_of(constants)

    def run(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
        device: bool = False,
    ) -> dict[str, Any]:
        """Return the outputs by name: arrays, lists (sequences), None (an empty optional).

        All is as for any Executable, but results are copied to `out`: their shapes are not known
        before.  Raises UnsupportedError where what the data lead to is not supported.
        """
        self._check_host()
        if device:
            raise UnsupportedError(
                "a model whose graph depends on its data runs in parts, between which its data are "
                "looked at on the host",
                hint="leave out device=True",
            )
        call = Call(calls.deadline_of(timeout))
        if out is None and outputs is None:
            return self._run(feeds, {}, call)
        return self.run_some(feeds, out, outputs, call)

    def _run(
        self,
        arrays: Mapping[str, Any],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        call = call or Call(None)
        named = feeds.named(arrays, self.inputs)
        inputs = {name: fit(named[name]) for name, fit in self._fit.items()}
        self._running.add(call)
        try:
            self._check_files()
            results = self._runner.run(inputs, call)
            self._check_files()
        except (TypeRuleError, feeds.Unfit) as error:
            raise feeds.unfit(error, inputs) from error.__cause__ or error
        finally:
            self._running.discard(call)
        return feeds.written(results, out) if out else results

    def _check_files(self) -> None:
        """Raise ModelError if a file that constants are mapped from was written into."""
        for file in self._files:
            file.check()

    def _description(self) -> Description:
        inputs = {n: self._kinds.get(n) if t is None else t for n, t in self.inputs.items()}
        head = describe.head(self.name, self.target, self.threads or default_threads())
        code = describe.code(self.artifacts, is_open=True)
        return Description("StagedExecutable", head, inputs, self.outputs, code)

    def archived(self, treated: str = "saved") -> StagedArchive:
        if self._settings is None:
            raise own_passes(treated, "compile the model where it is to run")
        model = self._runner.kept()
        if not model.stages:
            raise UnsupportedError(
                "the graph of this model depends on its data, and it has not been called: only "
                f"the parts that calls reached are {treated}",
                hint="call it with arrays like those to come",
            )
        return StagedArchive(model, self.target, self._settings)

    def warm(self, shapes: Any) -> None:
        raise UnsupportedError(
            "compiling ahead a model whose graph depends on its data is not supported",
            hint="call it once with arrays like those to come",
        )

    def timings(self, feeds: Mapping[str, Any], rounds: int = 20) -> Timings:
        raise UnsupportedError(
            "timing a model whose graph depends on its data, and which runs in parts, is not "
            "supported",
            hint="report() lists what the last run ran",
        )

    def report(self) -> list[Record]:
        """Return what the last run ran, in order."""
        return [recorded(r) if isinstance(r, Layout) else r for r in self._runner.last]

    @property
    def artifacts(self) -> list[Artifact]:
        """What has been compiled so far."""
        return list(self._runner.artifacts())
