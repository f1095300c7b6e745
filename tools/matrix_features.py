"""The features of `matrix.py`: each runs a subject, and raises unless its results are right."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from click.testing import CliRunner

import alpenglow as ag
import matrix_bundles
from alpenglow import train
from alpenglow.base.errors import AlpenglowError, DeviceError
from alpenglow.cli import cli
from alpenglow.ir.staged import StagedModel
from alpenglow.machines.opencl.devices import devices
from matrix_subject import Inapplicable, Subject, agree

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


@verb("compile, other sizes")
def _compile_open(s: Subject) -> None:
    if not s.extents:
        raise Inapplicable("there is no dynamic dimension")
    exe = ag.compile(s.loaded)
    s.check(exe.run(s.feeds))
    for more in (1, 5):
        extents = {n: d + more for n, d in s.extents.items()}
        feeds = s.model.feeds(s.loaded, extents)
        agree(exe.run(feeds), ag.compile(s.loaded, "interpreter").run(feeds))


@verb("save, open")
def _save(s: Subject) -> None:
    exe = ag.compile(s.loaded)
    exe.run(s.feeds)
    exe.save(s.folder / "model.ago")
    s.check(ag.open(s.folder / "model.ago").run(s.feeds))


@verb("pickle")
def _pickle(s: Subject) -> None:
    exe = ag.compile(s.loaded)
    if isinstance(s.loaded, StagedModel):  # what calls have led to is pickled
        exe.run(s.feeds)
    s.check(pickle.loads(pickle.dumps(exe)).run(s.feeds))


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
    limit = "1MB"
    try:
        ag.compile(s.fixed(), memory=1)
    except ag.errors.MemoryLimitError as error:
        limit = str(error.least)
    s.check(ag.compile(s.fixed(), memory=limit).run(s.feeds))


@verb("bf16")
def _bf16(s: Subject) -> None:
    s.check(ag.compile(s.loaded, precision="bf16").run(s.feeds), 0.1)


@verb("OpenCL")
def _opencl(s: Subject) -> None:
    try:
        devices()
    except DeviceError:
        raise Inapplicable("no OpenCL device is here") from None
    s.check(ag.compile(s.loaded, "opencl").run(s.feeds))


def _profile(s: Subject) -> ag.Profile:
    return ag.profile_ranges(s.loaded, [s.feeds])


@verb("profile-ranges")
def _profile_ranges(s: Subject) -> None:
    assert _profile(s).samples == 1


@verb("quantize")
def _quantize(s: Subject) -> None:
    s.check(ag.compile(ag.quantize(s.loaded, _profile(s))).run(s.feeds), 0.25)


@verb("weights only")
def _weights_only(s: Subject) -> None:
    options = ag.QuantOptions(weights_only="int8")
    s.check(ag.compile(ag.quantize(s.loaded, options=options)).run(s.feeds), 0.1)


@verb("train")
def _train(s: Subject) -> None:
    _trained(s, s.trainable(), 1e-3)


@verb("train for 8 bits")
def _train_aware(s: Subject) -> None:
    graph = s.fixed_parameters()
    rounded = train.quantization_aware(graph, ag.profile_ranges(graph, [s.inputs()]))
    _trained(s, ag.trainable(rounded, statistics="running"), 0.25)


def _trained(s: Subject, graph: ag.Graph, tolerance: float) -> None:
    """Take a step with a rate of 0 and compare what the trained model computes."""
    output, y = next(iter(s.expected.items()))
    trainer = train.Trainer(train.supervise(graph, "mse", output), "loss", train.SGD(0.0))
    trainer.step({**s.inputs(), "labels": np.asarray(y, np.float32)})
    s.check(ag.compile(trainer.trained()).run(s.inputs()), tolerance)


@verb("gradient")
def _gradient(s: Subject) -> None:
    graph = s.graph.bind(s.extents).copy()
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
    if isinstance(s.loaded, StagedModel):
        ag.truncate(s.loaded, "y")
    names = [v.name for n in s.graph.nodes for v in n.results if v.name]
    assert names, "no value has a name"
    first = ag.truncate(s.graph, names[len(names) // 2])
    feeds = {n: s.feeds[n] for n in first.callers_inputs()}
    agree(ag.compile(first).run(feeds), ag.compile(first, "interpreter").run(feeds))


@verb("export ONNX")
def _export(s: Subject) -> None:
    model = ag.export_onnx(s.loaded).SerializeToString()
    results = ag.compile(model).run(s.feeds)
    s.check({n: results[n] for n in s.expected})  # without what variables become


def _bundle(format: str) -> Verb:
    def write(s: Subject) -> None:
        results = matrix_bundles.run(s.fixed(), format, s.folder, s.feeds)
        if results is not None:
            s.check(results)

    return write


VERBS |= {f"bundle, {format}": _bundle(format) for format in matrix_bundles.FORMATS}


def _command(line: str) -> Verb:
    def run(s: Subject) -> None:
        np.savez(s.folder / "feeds.npz", **s.feeds)
        if "{data}" in line:
            samples: dict[str, Any] = {n: np.asarray(x)[None] for n, x in s.feeds.items()}
            np.savez(s.folder / "data.npz", **samples)
        dims = ",".join(f"{n}={d}" for n, d in s.extents.items())
        words = line.format(model=s.path, out=s.folder, dims=f"--dim {dims}" if dims else "",
                            data=s.folder / "data.npz")  # fmt: skip
        command(words)

    return run


def command(words: str) -> None:
    """Run a command; raise its error as the API would."""
    result = CliRunner().invoke(cli, words.split())
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    if result.exit_code == 1 and "the model does not fail" in result.stdout:
        return
    if result.exit_code:
        message = result.stderr.strip()
        start = message.rfind("error: ")
        assert start >= 0, f"exit code {result.exit_code}: {message or result.stdout}"
        first, _, hint = message[start:].removeprefix("error: ").partition("\n  try: ")
        raise AlpenglowError(re.sub(r"\s+\(/.*\)$", "", first), hint=hint)


VERBS |= {
    "`run`": _command("run {model} --feeds {out}/feeds.npz"),
    "`compile`": _command("compile {model} {dims} -o {out}/compiled.ago"),
    "`bundle`": _command("bundle {model} {dims} -o {out}/bundled"),
    "`convert`": _command("convert {model} {dims} -o {out}/converted.onnx"),
    "`show`": _command("show {model} {dims}"),
    "`check`": _command("check {model} {dims}"),
    "`profile`": _command("profile {model} {dims}"),
    "`bench`": _command("bench {model} {dims} --seconds 0.05"),
    "`quantize`": _command("quantize {model} {dims} --data {data} -o {out}/quantized.onnx"),
    "`profile-ranges`": _command("profile-ranges {model} {dims} --data {data} -o {out}/r.yaml"),
    "`tune`": _command("tune {model} {dims} -o {out}/tuned.txt"),
    "`place`": _command("place {model} {dims} --worker a=cpu --worker b=cpu --estimate"),
    "`verify`": _command("verify {model} --feeds {out}/feeds.npz --tolerance 1e-3"),
    "`reduce`": _command("reduce {model} {dims} -o {out}/small.onnx --check interpreter "
                         "--tolerance 0 --seconds 1"),
}  # fmt: skip
