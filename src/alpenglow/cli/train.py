"""`alpenglow train`: change what a model's constants hold by the gradient of a loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click
import numpy as np

import alpenglow as ag
from alpenglow import train
from alpenglow.base.arrays import readable
from alpenglow.base.errors import FeedError, OptionError
from alpenglow.base.words import counted, some
from alpenglow.cli import files
from alpenglow.cli.help import Command
from alpenglow.cli.interrupts import interruptible
from alpenglow.cli.options import Request, memory_option, model_options
from alpenglow.cli.output import columns, examples, show
from alpenglow.cli.pictures import picture_options
from alpenglow.cli.profile_ranges import whole_graph
from alpenglow.cli.progress import training_progress
from alpenglow.cli.source import refuse_constants
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import FLOATS
from alpenglow.ops.host.image import Pictures, skipped
from alpenglow.quant.options import Granularity, QuantOptions
from alpenglow.quant.schema import SCHEMAS, Schema
from alpenglow.train import history
from alpenglow.train.data import Samples, folder
from alpenglow.train.logs import Log, chart, curve
from alpenglow.train.schedules import Schedule
from alpenglow.train.supervised import LABELS, Loss
from alpenglow.train.trainer import batch_of

OPTIMIZERS = {
    "sgd": train.SGD, "adam": train.Adam, "adamw": train.AdamW, "rmsprop": train.RMSprop,
    "adagrad": train.Adagrad,
}  # fmt: skip

PROFILED = 8
"""Batches, the first ones, of which the ranges of activations are taken to train for 8 bits."""

Arrays = dict[str, Any]


@click.command(
    "train",
    cls=Command,
    epilog=examples("""
alpenglow train model.onnx --data samples.npz --epochs 5 -o trained.onnx
alpenglow train model.onnx --data pictures --validation 0.2 --optimizer sgd -o new.onnx
alpenglow train model.onnx --data samples.npz --train 'fc.*' --checkpoint run.npz -o trained.ago
alpenglow train model.onnx --data samples.npz --quantize symmetric_uint8 -o small.onnx
"""),
)
@model_options
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True,
              metavar="NPZ|DIR",
              help="The samples.  A .npz file with an array for each input and `labels`, whose "
              "first axis is the sample; or a folder of pictures, in one subfolder for each "
              "class.")  # fmt: skip
@click.option("--validation", "held", metavar="SHARE|NPZ|DIR",
              help="Validation data: a share of the samples (0.2 is every fifth), or other "
              "samples.")
@click.option("-o", "output", type=files.Written(".data"), metavar="FILE",
              help="The trained model: FILE.onnx, or a compiled archive FILE.ago.")  # fmt: skip
@click.option("--loss", type=click.Choice(get_args(Loss)),
              help="[default: cross-entropy for integer labels, otherwise mse]")  # fmt: skip
@click.option("--loss-of", "scores", metavar="NAME",
              help="The output that the loss is computed from.  [default: the first]")  # fmt: skip
@click.option("--train", "trained", multiple=True, default=["*"], metavar="PATTERN",
              show_default=True, help="Names of the constants to train.")  # fmt: skip
@click.option("--optimizer", type=click.Choice([*OPTIMIZERS]), default="adamw", show_default=True,
              help="The optimizer.")  # fmt: skip
@click.option("--learning-rate", "rate", type=float,
              help="The learning rate.  [default: 0.01 for sgd, rmsprop and adagrad, 0.001 for "
              "the others]")  # fmt: skip
@click.option("--momentum", type=float, help="Momentum of sgd and rmsprop.")
@click.option("--decay", type=float, help="Weight decay.")
@click.option("--schedule", type=click.Choice(["constant", "cosine"]), default="cosine",
              show_default=True, help="The learning rate schedule.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=0, show_default=True,
              metavar="STEPS", help="Number of steps in which the learning rate rises from 0.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True,
              help="Number of passes over the samples, with those of the checkpoint.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1),
              help="The batch size.  [default: as in the model, or 32]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the order of samples.")  # fmt: skip
@click.option("--clip", type=float,
              help="The largest norm of the gradient; longer gradients are scaled down.")
@click.option("--accumulate", type=click.IntRange(min=1), default=1, show_default=True,
              help="Number of batches whose gradients are averaged in one step.")  # fmt: skip
@click.option("--checkpoint", type=files.Written(history.EPOCHS, history.BEST), metavar="FILE",
              help="Write a checkpoint after each epoch.  If FILE exists, training continues from "
              "it.")  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), metavar="STEPS",
              help="Also write the checkpoint each time after this number of steps.")  # fmt: skip
@click.option("--keep-best", is_flag=True,
              help="With --validation: write the model of the epoch with the lowest validation "
              "loss, not of the last epoch.")  # fmt: skip
@click.option("--patience", type=click.IntRange(min=1), metavar="EPOCHS",
              help="With --validation: stop after this number of epochs without a lower "
              "validation loss.")
@click.option("--log", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write a log for TensorBoard into this folder.")  # fmt: skip
@click.option("--curve", "picture", type=files.Written(),
              metavar="FILE.svg", help="Write the curve of the loss as a picture.")  # fmt: skip
@click.option("--quantize", "schema", type=click.Choice(SCHEMAS),
              help="Quantization-aware training in 8 bits, with activations in this schema; -o "
              "writes the quantized model.  Ranges are calibrated with the first batches.")
@click.option("--granularity", type=click.Choice(get_args(Granularity)),
              help="With --quantize: the part of a weight that shares a scale.  [default: channel]")
@memory_option
@picture_options
def command(
    request: Request, data: Path, held: str | None, output: Path | None, loss: Loss | None,
    scores: str | None, trained: tuple[str, ...], optimizer: str, schedule: str, warmup: int,
    epochs: int, batch: int | None, seed: int, clip: float | None, accumulate: int,
    checkpoint: Path | None, every: int | None, keep_best: bool, patience: int | None,
    log: Path | None, picture: Path | None,
    schema: Schema | None, granularity: Granularity | None, memory: str | None,
    pictures: Pictures, **numbers: float | None,
) -> None:  # fmt: skip
    """Train MODEL on labelled samples, and write it.

    Batch normalization uses the statistics of the batch, and updates the running statistics for
    inference.
    """
    refuse_constants(request, "what is trained has all inputs")
    if granularity is not None and schema is None:
        raise OptionError("--granularity is given without --quantize, expected both")
    if held is None and (keep_best or patience is not None):
        given = "--keep-best" if keep_best else "--patience"
        raise OptionError(f"{given} is given without --validation, expected both")
    if output is not None and output.suffix not in (".onnx", ".ago"):
        raise OptionError(f"-o {output}: expected FILE.onnx or FILE.ago")
    for path in (output, picture):
        if path is not None:
            files.check_folder(path)
    model = whole_graph(request)
    arrays = _samples(model, data, pictures)
    kept = None
    if held is not None:
        arrays, kept = _parted(model, arrays, held, pictures)
    chosen = loss or ("mse" if arrays[LABELS].dtype.kind == "f" else "cross-entropy")
    if schema is not None:
        seen = {name: _fitting(model, name, x) for name, x in arrays.items() if name != LABELS}
        keep = frozenset(request.keep)
        options = QuantOptions(schema=schema, granularity=granularity or "channel", keep=keep)
        first = Samples(seen, batch or batch_of(model), seed, whole=True).epoch(0)
        profile = ag.profile_ranges(model, list(islice(first, PROFILED)))
        model = train.quantization_aware(model, profile, options)
    graph = train.supervise(ag.trainable(model, trained), chosen, scores)
    arrays = {name: _fitting(graph, name, x) for name, x in arrays.items()}
    kept = kept and {name: _fitting(graph, name, x) for name, x in kept.items()}
    each = len(arrays[LABELS]) // (batch or batch_of(graph))
    with contextlib.ExitStack() as stack:
        notes = stack.enter_context(Log(log)) if log is not None else None
        report = stack.enter_context(training_progress())
        trainer = train.Trainer(
            graph, "loss", _optimizer(optimizer, numbers),
            _schedule(schedule, warmup, epochs * each), clip, accumulate,
            target=Target.parse(request.target), threads=request.threads,
            options=replace(request, memory=memory).options(report.compiling),
        )  # fmt: skip
        past: list[train.Epoch] = []
        if checkpoint is not None and checkpoint.exists():
            trainer.load(checkpoint)
            past = history.read(checkpoint, trainer.steps // max(1, each))
            report.err(f"goes on from step {trainer.steps}, as {checkpoint} says")
        pressed = stack.enter_context(interruptible(report.err))

        def step(done: int, total: int, means: Mapping[str, float]) -> None:
            report.step(", ".join(f"{k} {v:.4f}" for k, v in means.items()), done, total)
            if notes is not None:
                notes.step(done, means)
            if pressed():
                begun = train.Epoch((done - 1) // each, 0, 0.0, dict(means))
                _draw([*past, begun], picture)
                _end(trainer, checkpoint, report.err)

        def epoch(one: train.Epoch) -> None:
            if not request.json:
                report.out(str(one))
            past.append(one)
            if checkpoint is not None:
                history.write(checkpoint, past)
            if notes is not None:
                notes.epoch(trainer.steps, one)

        found = trainer.fit(
            arrays, epochs, batch, seed, kept, checkpoint, every or 0, epoch, step,
            keep_best, patience, tuple(past),
        )  # fmt: skip
    _draw(past, picture)
    if found and (width := columns()) is not None and not request.json:
        for line in chart(past, width):
            click.echo(line)
    if output is not None:
        _write(trainer.trained(), output, request)
    result = {
        "steps": trainer.steps, "parameters": len(trainer.parameters), "file": str(output or ""),
        "epochs": [{"number": e.number, "seconds": e.seconds, **e.means,
                    **{f"held_{k}": v for k, v in e.held.items()}} for e in found],
    }  # fmt: skip
    done = counted(trainer.steps, "step") if found else "nothing was left to do"
    best = history.best_of(past, trainer.loss) if keep_best else None
    if best is not None:
        result["best"] = best.number
        done += f", epoch {best.number} has the lowest validation loss"
    if output is None:
        done += "; -o FILE writes the model"
    show(result, [f"{output}: {done}" if output is not None else done], request.json)


def _end(
    trainer: train.Trainer, checkpoint: Path | None, err: Callable[[str], None]
) -> None:
    """End a run between two steps: write the checkpoint, and print how training continues."""
    left = "nothing of it is left; with --checkpoint FILE the same command could go on"
    if checkpoint is not None:
        trainer.save(checkpoint)
        left = f"the same command goes on from {checkpoint}"
    taken = f"{counted(trainer.steps, 'step')} {'was' if trainer.steps == 1 else 'were'} taken"
    err(f"{taken}; {left}")
    raise KeyboardInterrupt


def _draw(epochs: Sequence[train.Epoch], picture: Path | None) -> None:
    """Write the curve of epochs to a picture, if there are both."""
    if picture is not None and epochs:
        drawn = curve(epochs).encode()
        files.write(picture, lambda file: _fill(file, drawn))


def _optimizer(name: str, numbers: Mapping[str, float | None]) -> train.Optimizer:
    given = {k: v for k, v in numbers.items() if v is not None}
    if name not in ("sgd", "rmsprop") and "momentum" in given:
        raise OptionError(f"--momentum with {name} is not supported; supported: sgd, rmsprop")
    given.setdefault("rate", 1e-3 if name.startswith("adam") else 1e-2)
    kind: Any = OPTIMIZERS[name]
    made: train.Optimizer = kind(**given)
    return made


def _schedule(name: str, warmup: int, steps: int) -> Schedule | None:
    later = train.cosine(max(1, steps - warmup)) if name == "cosine" else None
    return train.warmup(warmup, later) if warmup else later


def _samples(g: Graph, path: Path, pictures: Pictures) -> Arrays:
    """Return arrays by the names of inputs, and `labels`."""
    inputs = list(g.callers_inputs())
    if path.is_dir():
        t = g.inputs[inputs[0]].type
        plain = (
            t.rank == 4 and t.shape[1] in (1, 3) and all(isinstance(d, int) for d in t.shape[2:])
        )
        if len(inputs) != 1 or not plain:
            raise OptionError(
                f"the inputs are {', '.join(f'{n} {g.inputs[n].type}' for n in inputs)}, but a "
                "folder of images is for one, [N, 3, height, width] or [N, 1, height, width]",
                hint="a .npz file of arrays",
            )
        height, width = (int(d) for d in t.shape[2:])
        if left_out := skipped(path):
            names = some(file.name for file in left_out)
            click.echo(f"{path}: {counted(len(left_out), 'file')} skipped: {names}", err=True)
        return folder(path, (height, width), (inputs[0], LABELS), t.shape[1] == 1, pictures)
    if pictures != Pictures():
        raise OptionError(
            "--mean, --std and --crop are for folders of pictures, expected --data DIR",
            hint="scale the arrays of the .npz file",
        )
    try:
        with readable(), np.load(path) as content:
            arrays = dict(content) if not isinstance(content, np.ndarray) else {"": content}
    except (OSError, ValueError) as error:
        raise FeedError(f"expected a .npy or .npz file: {error}", file=str(path)) from None
    if arrays.keys() != {*inputs, LABELS}:
        raise FeedError(
            f"there are arrays {', '.join(arrays) or 'none'}, expected {', '.join(inputs)}, "
            f"{LABELS}", file=str(path),
        )  # fmt: skip
    for name in inputs:
        if g.inputs[name].type.dtype in FLOATS and arrays[name].dtype.kind in "iub":
            raise FeedError(
                f"array {name} holds {arrays[name].dtype}, expected floats", file=str(path),
                hint="bytes of pictures are divided by what the model expects, mostly 255",
            )  # fmt: skip
    return arrays


def _parted(
    g: Graph, arrays: Arrays, held: str, pictures: Pictures
) -> tuple[Arrays, Arrays]:
    """Return training and validation data: a share of the samples, evenly taken, or a file."""
    try:
        share = float(held)
    except ValueError:
        if not Path(held).exists():
            raise OptionError(f"--validation {held}: expected a share, as 0.2, or a file") from None
        return arrays, _samples(g, Path(held), pictures)
    if not 0 < share < 1:
        raise OptionError(f"--validation {held}: expected a share between 0 and 1")
    count = len(arrays[LABELS])
    out = np.zeros(count, bool)
    out[(np.arange(int(count * share)) / share).astype(int)] = True
    if not out.any():
        raise OptionError(f"--validation {held}: 0 of {count} samples, expected 1 or more")
    parts = [{k: x[rows] for k, x in arrays.items()} for rows in (~out, out)]
    return parts[0], parts[1]


def _fitting(g: Graph, name: str, x: Any) -> Any:
    """Return an array in the element type of its input, if nothing is lost by that."""
    dtype = g.inputs[name].type.numpy
    if x.dtype == dtype or (x.dtype.kind in "iub") != (dtype.kind in "iub"):
        return x
    return x.astype(dtype)


def _write(g: Graph, output: Path, request: Request) -> None:
    if output.suffix == ".onnx":
        ag.export_onnx(g, output)
    else:
        exe = ag.compile(g, request.target, request.threads, options=request.options())
        exe.save(output)


def _fill(file: BinaryIO, content: bytes) -> None:
    file.write(content)
