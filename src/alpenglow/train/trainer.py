"""The trainer: a step that is compiled once, and a session that keeps what it changes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import FeedError, OptionError, SessionError, TrainingError
from alpenglow.base.words import counted
from alpenglow.compiler import Options
from alpenglow.driver.compile import compile
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.quant.aware import stored
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.session.session import Session
from alpenglow.train.blame import first_infinite
from alpenglow.train.data import Batch, Data, Samples, Stream, ahead, batches
from alpenglow.train.history import Epoch, best_file_of, best_of, stalled
from alpenglow.train.optimizers import Optimizer
from alpenglow.train.parameters import fixed, inference
from alpenglow.train.schedules import Schedule, constant
from alpenglow.train.step import NORM, RATE, STEP, Rules, parameters, training_step

Array = NDArray[Any]

BATCH = 32
"""Samples of a batch where neither a caller nor the graph says how many."""


class Trainer:
    """Train the parameters of a graph: its variables of floats that it does not assign.

    Args:
        graph: the graph, for example of `supervise`.
        loss: the name of the scalar output to minimise.
        optimizer: the optimizer.
        schedule: the factor of the learning rate by the number of the step; None: 1.
        clip: the largest norm of the gradient of all parameters together; None: no limit.
        accumulate: the number of batches whose gradients are averaged for one change of parameters.
        guard: True changes no parameter in a step whose loss or gradient is infinite or NaN.
        target: the target of the code.
        threads: the number of threads; None: one for each CPU that this process may use.
        options: the options of the compiler; None: `Options()`.

    Raises:
        TypeRuleError: if the loss is not a scalar.
        OptionError: if there are no parameters, or the loss does not depend on one of them.
        UnsupportedError: if an operator has no gradient.

    Example:
        >>> graph = ag.trainable(ag.load("model.onnx", {"x": (16, 8)}))
        >>> graph = ag.train.supervise(graph, "cross-entropy")
        >>> trainer = ag.train.Trainer(graph, "loss", ag.train.SGD(rate=0.1))
        >>> x = np.eye(16, 8, dtype=np.float32)
        >>> [epoch] = trainer.fit({"x": x, "labels": x[:, :4].argmax(1)})
        >>> exe = ag.compile(trainer.trained())
        >>> list(exe.outputs)
        ['y']
    """

    def __init__(
        self,
        graph: Graph,
        loss: str,
        optimizer: Optimizer,
        schedule: Schedule | None = None,
        clip: float | None = None,
        accumulate: int = 1,
        guard: bool = True,
        target: Target | str = "cpu",
        threads: int | None = None,
        options: Options | None = None,
    ) -> None:
        self.model = graph.copy()
        self.loss, self.optimizer, self.schedule = loss, optimizer, schedule or constant()
        self.rules = Rules(clip, accumulate, guard)
        self.parameters = parameters(graph)
        self.graph = training_step(graph, loss, optimizer, self.rules)
        self._make: Callable[[Graph], Executable] = lambda g: compile(
            g, target, threads, options=options
        )
        self.executable = self._make(self.graph)
        self.session: Session = self.executable.session()
        self._ranges = [
            (name, node.op)
            for name, v in self.model.inputs.items()
            for node in v.users
            if isinstance(node.op, InRange)
        ]
        self._evaluation: Session | None = None

    def __repr__(self) -> str:
        count = sum(self.graph.inputs[name].type.size for name in self.parameters)
        try:
            taken = counted(self.steps, "step")
        except SessionError:  # a call runs, or one was ended half way
            taken = "steps are not known"
        return (
            f"Trainer({self.model.name}; {counted(len(self.parameters), 'parameter')} of {count:,} "
            f"elements, {self.optimizer}; {taken})"
        )

    # ── steps ──

    @property
    def steps(self) -> int:
        """The number of steps taken; the session counts them."""
        return int(self.session.variables[STEP])

    def step(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run one step on a batch and return the outputs of the graph.

        Args:
            feeds: an array for each input by name.

        Returns:
            The outputs by name.

        Raises:
            FeedError: if an array does not fit.
            TrainingError: if the loss or a gradient is infinite or NaN; with `guard`, no parameter
                has changed.
        """
        for name, op in self._ranges:  # before anything changes
            if name in feeds:
                op.reference(np.asarray(feeds[name]))
        rate = np.asarray(self.optimizer.rate * self.schedule(self.steps), np.float64)
        outs = self.session.run({**feeds, RATE: rate})
        norm = outs.get(NORM)
        if not math.isfinite(outs[self.loss]) or (norm is not None and not math.isfinite(norm)):
            raise self._failed(feeds, outs)
        return outs

    def _failed(self, feeds: Mapping[str, Any], outs: Mapping[str, Any]) -> TrainingError:
        what = f"the loss is {float(outs[self.loss])}"
        if math.isfinite(outs[self.loss]):
            what = f"the gradient is {float(outs[NORM])}"
        where, hint = "", "parameters may be lost"
        if self.rules.guard:
            given = {**feeds, **self.session.variables, RATE: np.asarray(self.optimizer.rate)}
            where, hint = first_infinite(self.graph, given), "parameters are as they were before"
        return TrainingError(
            f"in step {self.steps}, {what}{where}", hint=f"a lower rate, or clip=1.0; {hint}"
        )

    # ── through data ──

    def fit(
        self,
        data: Data,
        epochs: int = 1,
        batch: int | None = None,
        seed: int | None = 0,
        held: Data | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 0,
        report: Callable[[Epoch], None] | None = None,
        progress: Callable[[int, int, Mapping[str, float]], None] | None = None,
        keep_best: bool = False,
        patience: int | None = None,
        earlier: Sequence[Epoch] = (),
    ) -> list[Epoch]:
        """Run steps on all data, until `epochs` epochs in all are done.

        The steps taken so far count: after `load`, training continues where the checkpoint was
        written.  A checkpoint is written after each epoch.

        Args:
            data: arrays by input name, whose first axis is the sample; or batches: a list of dicts,
                or a function that returns the batches of an epoch.
            epochs: the number of epochs in all.
            batch: the number of samples of a batch; None: the batch size of the graph, or 32.
                Samples that fill no batch are dropped.
            seed: the seed of the order of samples in each epoch; None keeps the order.
            held: data that are evaluated after each epoch.
            checkpoint: the file of checkpoints; None: none are written.
            every: the number of steps between further checkpoints; 0: none.
            report: a function that is called with each epoch.
            progress: a function that is called after each step with the number of steps, the number
                of all steps or 0, and the means so far.
            keep_best: True sets the trainer, at the end, to its state after the epoch with the
                lowest validation loss; with `checkpoint` the file `CHECKPOINT.best` keeps it.
            patience: the number of epochs without a lower validation loss after which training
                stops; None: it does not stop before `epochs`.
            earlier: the epochs before this call, which count for `keep_best` and `patience`.

        Returns:
            The epochs of this call.
        """
        if epochs < 1:
            raise OptionError(f"epochs is {epochs}, expected 1 or more")
        if patience is not None and patience < 1:
            raise OptionError(f"patience is {patience}, expected 1 or more")
        if held is None and (keep_best or patience is not None):
            raise OptionError("held is None, expected validation data for keep_best and patience")
        source = batches(data, self._size(batch), seed, whole=True)
        if held is not None:
            self._check_held(held)
        if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
            raise OptionError(
                f"checkpoint is {checkpoint}, expected a file in a folder that exists"
            )
        each = len(source)
        number, begin = divmod(self.steps, each) if each else (0, 0)
        best = _Best(self.session, checkpoint, earlier, self.loss) if keep_best else None
        found: list[Epoch] = []
        while number < epochs and not stalled([*earlier, *found], self.loss, patience):
            epoch = self._epoch(source, number, begin, epochs, checkpoint, every, progress)
            if checkpoint is not None:
                self.save(checkpoint)
            if held is not None:
                epoch.held = self.evaluate(held, batch)
            if best is not None:
                best.keep(epoch)
            if report is not None:
                report(epoch)
            found.append(epoch)
            number, begin = number + 1, 0
        if best is not None:
            best.restore()
        return found

    def _epoch(
        self, source: Samples | Stream, number: int, begin: int, epochs: int,
        checkpoint: str | os.PathLike[str] | None, every: int,
        progress: Callable[[int, int, Mapping[str, float]], None] | None,
    ) -> Epoch:  # fmt: skip
        began, means = time.perf_counter(), _Means()
        steps = 0
        for given in ahead(source.epoch(number, begin)):
            means.add(self.step(given), 1)
            steps += 1
            if progress is not None:
                progress(self.steps, len(source) * epochs, means.found())
            if checkpoint is not None and every and self.steps % every == 0:
                self.save(checkpoint)
        if not steps:
            raise FeedError(f"epoch {number} has no batches, expected 1 or more")
        return Epoch(number, steps, time.perf_counter() - began, means.found())

    def evaluate(self, data: Data, batch: int | None = None) -> dict[str, float]:
        """Return the means of all scalar outputs, with running statistics and without dropout.

        Args:
            data: data as `fit` takes them.
            batch: the number of samples of a batch; None: as in `fit`.

        Returns:
            The means by name.

        Raises:
            FeedError: if the graph has a fixed batch size that does not divide the number of
                samples.
        """
        if self._evaluation is None:
            self._evaluation = self._make(inference(self.model)).session()
        session, now = self._evaluation, self.session.variables
        session.variables.update({name: now[name] for name in session.variables})
        means = _Means()
        for given in ahead(batches(data, self._size(batch), None, whole=False).epoch(0)):
            means.add(session.run(given), _samples(given))
        return means.found()

    def _size(self, batch: int | None) -> int:
        return batch_of(self.model) if batch is None else batch

    def _check_held(self, held: Data) -> None:
        """Raise FeedError, before anything is trained, where the last batch would not be whole."""
        size = fixed_batch(self.model)
        if size is None or not isinstance(held, Mapping):
            return
        count = len(Samples(held, 1, None, whole=False))
        if count % size:
            raise FeedError(
                f"there are {count} validation samples, expected a multiple of {size}, the batch "
                "of the graph",
                hint=f"give {count - count % size}, or build the graph with a dynamic batch",
            )

    # ── what comes of it ──

    def values(self) -> dict[str, Array]:
        """Return copies of the parameters and running statistics.

        Returns:
            The arrays by name.
        """
        held = self.session.variables
        return {name: held[name] for name in self.model.initial}

    def trained(self, outputs: Sequence[str] | None = None) -> Graph:
        """Return the trained model, with parameters as constants.

        Values that `quantization_aware` rounded are stored quantized.

        Args:
            outputs: the names of the outputs to keep; None: all that need no more inputs than one
                of them, which excludes losses and other outputs that need labels.

        Returns:
            The graph.
        """
        g = inference(self.model, outputs or self._predictions())
        values = self.values()
        return stored(fixed(g, {name: values[name] for name in g.initial}))

    def _predictions(self) -> list[str]:
        """Return the outputs that the fewest inputs are needed for."""
        needs = {
            name: len(inference(self.model, [name]).callers_inputs())
            for name in self.model.callers_outputs()
        }
        return [name for name, count in needs.items() if count == min(needs.values())]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, with all that training needs to continue.

        The file is complete or not there at all.

        Args:
            path: the file to write or replace.
        """
        self.session.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same graph and optimizer, bit for bit.

        Args:
            path: the file.

        Raises:
            ModelError: if the file is not a checkpoint.
            SessionError: if the checkpoint belongs to another graph or optimizer.
        """
        self.session.load(path)


def fixed_batch(g: Graph) -> int | None:
    """Return how many samples the inputs of a graph hold, None if they do not say."""
    firsts = {v.type.shape[0] for v in g.callers_inputs().values() if v.type.rank}
    numbers = [d for d in firsts if isinstance(d, int)]
    return numbers[0] if len(firsts) == len(numbers) == 1 else None


def batch_of(g: Graph) -> int:
    """Return how many samples a batch has where nobody says."""
    return fixed_batch(g) or BATCH


class _Best:
    """The state of a session after the epoch with the lowest validation loss."""

    def __init__(
        self, session: Session, checkpoint: str | os.PathLike[str] | None,
        earlier: Sequence[Epoch], loss: str,
    ) -> None:  # fmt: skip
        self._session, self._loss = session, loss
        self._file = None if checkpoint is None else best_file_of(checkpoint)
        self._arrays: dict[str, Array] = {}
        stored = self._file is not None and self._file.exists()
        self._best = best_of(earlier, loss) if stored else None

    def keep(self, epoch: Epoch) -> None:
        """Keep the present state if the epoch is better than those before."""
        best = best_of([epoch] if self._best is None else [self._best, epoch], self._loss)
        if best is not epoch:
            return
        self._best = epoch
        if self._file is not None:
            self._session.save(self._file)
        else:
            held = self._session.variables
            self._arrays = {name: np.array(held[name]) for name in held}

    def restore(self) -> None:
        """Set the session to the state after the best epoch, if there is one."""
        if self._best is not None and self._file is not None:
            self._session.load(self._file)
        self._session.variables.update(self._arrays)


class _Means:
    """Running means of scalar outputs."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weight = 0

    def add(self, outs: Mapping[str, Any], weight: int) -> None:
        self._weight += weight
        for name, x in outs.items():
            if np.ndim(x) == 0 and name != NORM:
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(x)

    def found(self) -> dict[str, float]:
        return {name: total / self._weight for name, total in self._sums.items()}


def _samples(given: Batch) -> int:
    return max((x.shape[0] for x in given.values() if x.ndim), default=1)
