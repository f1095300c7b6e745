"""`alpenglow quantize`: a model in few bits, and a report of what that does to it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.calibration.metrics import METRICS, Metric, decibels
from alpenglow.calibration.ranges import profile_ranges
from alpenglow.calibration.samples import Dataset
from alpenglow.calibration.tune import Tuning, tune
from alpenglow.cli import files
from alpenglow.cli.as_onnx import is_onnx
from alpenglow.cli.help import Command
from alpenglow.cli.options import Request, model_options
from alpenglow.cli.output import examples, show, table
from alpenglow.cli.profile_ranges import data_option, samples, whole_graph
from alpenglow.cli.progress import progress
from alpenglow.cli.show import write as write_text
from alpenglow.cli.source import IMPORT, MARK, refuse_constants
from alpenglow.exporters.onnx import export_onnx
from alpenglow.frontends.onnx.export import Exported, export
from alpenglow.ir.graph import Graph
from alpenglow.ir.text import print_graph, side_weights
from alpenglow.quant.calibrate import CALIBRATIONS
from alpenglow.quant.convert import convert
from alpenglow.quant.options import (
    Bias,
    Compute,
    Granularity,
    Precision,
    QuantOptions,
    WeightsOnly,
)
from alpenglow.quant.profile import Profile
from alpenglow.quant.schema import SCHEMAS
from alpenglow.report.explain import Explanation, LayerReport, explain

OPTIONS = (
    click.option("--bits", type=click.Choice(["8", "16"]), default="8", show_default=True,
                 help="Bits of activations and weights."),
    click.option("--schema", type=click.Choice(SCHEMAS), default="asymmetric", show_default=True,
                 help="How activations are quantized: zero point, signedness, powers of two."),
    click.option("--calibration", type=click.Choice(CALIBRATIONS), default="mse",
                 show_default=True, help="How to choose the quantization range from a histogram."),
    click.option("--percentile", type=float, default=99.99, show_default=True,
                 help="The percentage of elements in the range, with --calibration percentile."),
    click.option("--granularity", type=click.Choice(get_args(Granularity)), default="channel",
                 show_default=True, help="The part of a weight that shares a scale."),
    click.option("--bias", type=click.Choice(get_args(Bias)), default="int32", show_default=True,
                 help="The dtype of biases."),
    click.option("--weights-only", type=click.Choice(get_args(WeightsOnly)), default="none",
                 show_default=True,
                 help="Weight-only quantization: the dtype of weights; activations stay in "
                 "floats."),
    click.option("--group", type=click.IntRange(min=0), default=0, show_default=True,
                 help="With --weights-only: number of input channels that share a scale; 0 is all "
                 "of them."),
    click.option("--compute", type=click.Choice(get_args(Compute)), default="f32",
                 show_default=True, help="With --weights-only: the dtype of matmul operands."),
    click.option("--convert-placeholders", is_flag=True,
                 help="Quantize inputs and outputs of the model, too."),
)  # fmt: skip


def quantization_options(function: Any) -> Any:
    """Give a command the options of `QuantOptions`."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(
    "quantize",
    cls=Command,
    epilog=examples("""
alpenglow quantize model.onnx --data samples.npz -o small.onnx
alpenglow quantize model.onnx --data samples.npz --metric top1 --max-drop 0.5% -o small.onnx
alpenglow quantize model.onnx --data folder --calibrate 200 --schema symmetric -o small.onnx
alpenglow quantize model.onnx --data samples.npz --weights-only int4 --group 32 -o small.onnx
"""),
)
@model_options
@data_option
@click.option("-o", "output", type=files.Written(".npz"), required=True,
              metavar="FILE",
              help="The quantized model.  FILE.onnx: ONNX with QuantizeLinear and "
              "DequantizeLinear; FILE.ago: a compiled archive; any other name: text as from "
              "`show`.")  # fmt: skip
@click.option("--ranges", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Ranges from `alpenglow profile-ranges`.  [default: profile the samples first]")
@click.option("--calibrate", type=click.IntRange(min=1), metavar="N",
              help="Calibrate with N evenly spaced samples, and measure accuracy with the others.  "
              "[default: all samples for both]")  # fmt: skip
@click.option("--metric", type=click.Choice(METRICS), default="agreement", show_default=True,
              help="The accuracy metric.")  # fmt: skip
@click.option("--max-drop", metavar="0.5%",
              help="The largest allowed loss of the metric; layers stay in f32 until it is met.")
@click.option("--report", type=files.Written(), metavar="FILE",
              help="The report, in Markdown.  [default: the name of -o, ending in .md]")
@quantization_options
def command(
    request: Request, data: Path, output: Path, ranges: Path | None, calibrate: int | None,
    metric: Metric, max_drop: str | None, report: Path | None, bits: str, **rest: Any,
) -> None:  # fmt: skip
    """Quantize MODEL and write it, with a report of accuracy and speed.

    --max-drop limits the loss of accuracy: each layer is measured alone, and the layers that cost
    most accuracy stay in f32 (with --precision bf16: in bf16, as far as the loss allows).
    """
    precision: Precision = "int16" if bits == "16" else "int8"
    options = QuantOptions(precision=precision, keep=frozenset(request.keep), **rest)
    if request.precision != "f32" and options.weights_only != "none":
        raise OptionError(
            f"--precision {request.precision} is not supported with --weights-only, which computes "
            "in floats",
            hint="--compute bf16",
        )
    page = report or output.with_suffix(".md")
    if report is None:
        files.refuse_overwriting(click.get_current_context(), [("--report", page)])
    most = 1.0 if max_drop is None else share(max_drop)
    g = whole_graph(request)
    check_output(request, g, output)
    everything = samples(g, data)
    seen, tested = everything.parted(calibrate) if calibrate else (everything, everything)
    with progress() as bar:
        profile = None
        if ranges is not None:
            profile = Profile.load(ranges)
        elif options.weights_only == "none":
            profile = profile_ranges(g, seen, threads=request.threads, progress=bar)
        tuning = tune(g, profile, tested, options, metric=metric, max_drop=most,
                      precision=request.precision, threads=request.threads,
                      progress=bar)  # fmt: skip
    told = explain(tuning.plan, profile, tested, request.threads, tuning.precision, tuning.wide)
    exported = write(request, tuning, output)
    notes = exported.notes if exported else ()
    text = markdown(request, tuning, told, tested, notes)
    files.write(page, lambda file: _write(file, text))
    result = summary(tuning, told, tested) | {"file": str(output), "report": str(page)}
    show(result, lines(tuning, told, tested, output, notes), request.json)


def share(text: str) -> float:
    """Read a share: 0.5% or 0.005."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else math.inf
    if value >= 1 and match is not None and not match[2]:
        raise OptionError(f"--max-drop is {text}, expected a percentage, or a share below 1",
                          hint=f"--max-drop {text.strip()}%")  # fmt: skip
    if value > 1:
        raise OptionError(f"--max-drop is {text}, expected a share, like 0.5% or 0.005")
    return value


def check_output(request: Request, g: Graph, output: Path) -> None:
    """Raise an error, before all work, if the quantized graph cannot be written as `output`."""
    if output.suffix != ".onnx":
        return
    if is_onnx(request):
        refuse_constants(request, "the ONNX file that is written has all inputs")
        return
    try:
        export_onnx(g)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{request.model} is no ONNX file, and the graph that was read {error.message}",
            hint=f"-o {output.with_suffix('.ago')}",
        ) from None


def write(request: Request, tuning: Tuning, output: Path) -> Exported | None:
    """Write the quantized model: into the ONNX file that it was, or as a graph."""
    if output.suffix == ".onnx" and is_onnx(request):
        exported = export(request.model, tuning.plan)
        files.write(output, lambda file: _write(file, exported.model.SerializeToString()))
        return exported
    g: Graph = convert(tuning.plan)
    if output.suffix == ".onnx":
        export_onnx(g, output)
    elif output.suffix == ".ago":
        chosen = replace(request, precision=tuning.precision, keep=tuning.wide).options()
        ag.compile(g, request.target, request.threads, options=chosen).save(output)
    else:
        write_text(output, f"{MARK}{IMPORT}\n{print_graph(g)}\n", side_weights(g))
    return None


def summary(tuning: Tuning, told: Explanation, data: Dataset) -> dict[str, Any]:
    """Return what was found, fit for JSON."""
    return {
        "metric": tuning.metric, "samples": len(data), "loss_before": tuning.before,
        "loss_after": tuning.after, "drop": tuning.drop,
        "models_tried": tuning.tried, "precision": tuning.precision, "keep": list(tuning.wide),
        "seconds_before": told.before, "seconds_after": told.after,
        "layers": [_row(x, tuning.noise.get(x.name)) for x in told.layers],
        "notes": list(told.notes),
    }  # fmt: skip


def _row(x: LayerReport, noise: float | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": x.name, "operator": x.kind, "quantized": not x.why, "why": x.why,
        "sqnr": x.sqnr, "low": x.low, "high": x.high,
        "seconds_before": x.before, "seconds_after": x.after,
    }  # fmt: skip
    if noise is not None:
        fields["noise_alone"] = noise
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in fields.items()}  # fmt: skip


def outcome(tuning: Tuning, data: Dataset) -> str:
    """Return the sentence about what is lost."""
    stored, layers = len(tuning.plan.layers), len(tuning.plan.decisions)
    if tuning.metric == "sqnr":
        ratio = decibels(tuning.after)
        lost = f"the outputs have {ratio:.1f} dB of signal to noise"
        if math.isinf(ratio):
            lost = "the outputs are those before"
    else:
        lost = (
            f"{tuning.metric} loses {100 * tuning.drop:.2f} points "
            f"({100 - 100 * tuning.before:.2f} to {100 - 100 * tuning.after:.2f} %)"
        )
    whole = f"{stored} of {layers} layers are quantized; {lost} on {counted(len(data), 'sample')}"
    return whole + halved(tuning)


def halved(tuning: Tuning) -> str:
    """Return what to compile the model with, where others take half precision."""
    if tuning.precision == "f32":
        return ""
    kept = f" --keep {','.join(tuning.wide)}" if tuning.wide else ""
    return f", compiled with --precision {tuning.precision}{kept}"


def lines(
    tuning: Tuning, told: Explanation, data: Dataset, output: Path, notes: tuple[str, ...]
) -> list[str]:
    """Return what is printed."""
    text = [*table(told.rows(), right=frozenset({3, 5, 6, 7})), *told.sentences(), *notes]
    return [*text, f"{output}: {outcome(tuning, data)}"]


def markdown(
    request: Request, tuning: Tuning, told: Explanation, data: Dataset, notes: tuple[str, ...]
) -> str:
    """Return the report."""
    o = tuning.plan.options
    parts = [
        f"# {request.model.name}, quantized",
        f"{outcome(tuning, data)}.  Models measured: {tuning.tried}.",
        f"Precision {o.precision}, schema {o.schema}, calibration {o.calibration}, a scale a "
        f"{o.granularity}, bias {o.bias}, weights only: {o.weights_only}.",
        told.markdown().rstrip(),
    ]
    parts += [f"- {note}." for note in notes]
    if tuning.noise:
        parts.append("## Each layer alone")
        parts.append("The noise in the results if nothing else is quantized:")
        worst = sorted(tuning.noise.items(), key=lambda item: -item[1])
        rows = [f"| {name} | {decibels(noise):.1f} |" for name, noise in worst]
        parts.append("\n".join(["| layer | dB |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _write(file: Any, content: str | bytes) -> None:
    file.write(content.encode() if isinstance(content, str) else content)
