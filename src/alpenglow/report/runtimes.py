"""The process of one runtime in a contest: it loads a model, runs it when told, and takes the time.

    python runtimes.py NAME THREADS CPUS

This file is run by its path, by whichever Python has the runtime: it needs NumPy beside that and
nothing of this package.  A request is one line of JSON on standard input, and so is the answer on
what was standard output; whatever the runtime itself prints goes to standard error.

    {"do": "load", "model": FILE, "feeds": FILE.npz, "scratch": DIR}  =>  {"seconds", "version"}
    {"do": "burst", "warm": N, "calls": N, "seconds": S}              =>  {"times": [S, …]}
    {"do": "results", "to": FILE.npz}                                 =>  {"names": […]}
    {"do": "memory"}                                                  =>  {"peak": BYTES}
    {"do": "limit"}                                                   =>  {"seconds"}

The last is for Alpenglow alone: what its kernels cannot take less than (see `report.limit`).

What goes wrong in a request is answered by {"error": TEXT}.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOW, FEW = 0.3, 7
"""Calls that take more seconds are made fewer times."""

SHAPE = 8
"""Vectors of so many elements may be shapes or paddings."""

Array = NDArray[Any]
Arrays = dict[str, Array]
Call = Callable[[], Arrays]


@dataclass(frozen=True)
class Task:
    """What is to be run: a model on some arrays, with a folder for what is made of it.

    `precision` is what contractions take, f32 or bf16; not every runtime can be told.
    """

    model: Path
    feeds: Mapping[str, Array]
    threads: int
    scratch: Path
    precision: str = "f32"


@dataclass(frozen=True)
class Runtime:
    """How a runtime is found and used.

    `module` is what is imported and `package` what is installed; `prepare` converts the model,
    where that is done ahead, and is not counted as loading.  `settings` says what is asked of it.
    """

    module: str
    package: str
    load: Callable[[Task], Call]
    settings: str
    prepare: Callable[[Task], None] | None = None
    precisions: tuple[str, ...] = ("f32",)


class Own:
    """A call of Alpenglow, which can also tell the limit of its kernels."""

    def __init__(self, exe: Any, feeds: Mapping[str, Array], threads: int) -> None:
        self.exe, self.feeds, self.threads = exe, feeds, threads

    def __call__(self) -> Arrays:
        return dict(self.exe.run(self.feeds))

    def limit(self) -> float | None:
        module = import_module("alpenglow.report.limit")
        seconds: float | None = module.limit(self.exe, self.threads)
        return seconds


# ── the runtimes ──


def alpenglow(task: Task) -> Call:
    ag = import_module("alpenglow")
    if task.model.suffix == ".ago":
        exe = ag.open(task.model, task.threads)
    else:
        shapes = {name: x.shape for name, x in task.feeds.items()}
        precision = task.precision
        exe = ag.compile(task.model, threads=task.threads, shapes=shapes, precision=precision)
    return Own(exe, task.feeds, task.threads)


def onnxruntime(task: Task) -> Call:
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(task.model), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = dict(task.feeds)
    return lambda: dict(zip(names, session.run(None, feeds), strict=True))


def openvino(task: Task) -> Call:
    ov = import_module("openvino")
    core = ov.Core()
    model = core.read_model(str(task.model))
    model.reshape({name: list(x.shape) for name, x in task.feeds.items()})
    settings = {
        "INFERENCE_NUM_THREADS": task.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": task.precision,
        "PERFORMANCE_HINT": "LATENCY",
        # Products with compressed weights would be of integers otherwise.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        # The process is pinned already.
        "ENABLE_CPU_PINNING": False,
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    feeds = dict(task.feeds)

    def call() -> Arrays:
        found = request.infer(feeds, share_inputs=False, share_outputs=False)
        return {key.get_any_name(): x for key, x in found.items()}

    return call


def convert_for_ncnn(task: Task) -> None:
    """Write the model as ncnn reads it, by the converter in the package pnnx."""
    spec = find_spec("pnnx")
    assert spec is not None and spec.submodule_search_locations, "pnnx is installed beside ncnn"
    made = {
        f"{tool}{kind}": task.scratch / f"{tool}.{kind}"
        for tool in ("pnnx", "ncnn")
        for kind in ("param", "bin", "py")
    }
    made["pnnxonnx"] = task.scratch / "pnnx.onnx"
    run(
        [
            Path(spec.submodule_search_locations[0]) / "pnnx",
            task.model,
            "fp16=0",
            "inputshape=" + ",".join(map(_pnnx_shape, task.feeds.values())),
            *(f"{key}={path}" for key, path in made.items()),
        ],
        task.model,
        made["ncnnparam"],
    )


def _pnnx_shape(x: Array) -> str:
    kind = {"f": "f", "i": "i", "u": "u", "b": "i"}[x.dtype.kind]
    return f"[{','.join(map(str, x.shape))}]{kind}{8 * x.dtype.itemsize}"


def ncnn(task: Task) -> Call:
    package = import_module("ncnn")
    batch = max((x.shape[0] for x in task.feeds.values() if x.ndim > 1), default=1)
    if batch > 1:
        raise ValueError("ncnn runs one sample at a time")
    net = package.Net()
    net.opt.num_threads = task.threads
    for narrow in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{narrow}", False)
    if net.load_param(str(task.scratch / "ncnn.param")):
        raise ValueError("ncnn has no such layer")
    net.load_model(str(task.scratch / "ncnn.bin"))
    samples = (_narrowed(x[0] if x.ndim > 1 else x) for x in task.feeds.values())
    # A Mat of an array does not keep it: it needs a copy.
    given = [package.Mat(np.ascontiguousarray(x)).clone() for x in samples]
    mats = list(zip(net.input_names(), given, strict=True))
    outputs = net.output_names()

    def call() -> Arrays:
        extractor = net.create_extractor()
        for name, mat in mats:
            extractor.input(name, mat)
        found = {}
        for name in outputs:
            status, mat = extractor.extract(name)
            if status:
                raise ValueError(f"ncnn cannot compute {name}")
            found[name] = np.array(mat)
        return found

    return call


def _narrowed(x: Array) -> Array:
    """Return integers of 64 bits in 32, which these runtimes count in."""
    return x.astype(np.int32) if x.dtype == np.int64 else x


def convert_for_mnn(task: Task) -> None:
    """Write the model as MNN reads it, by the converter in its package."""
    made = task.scratch / "model.mnn"
    tool = Path(sys.executable).with_name("mnnconvert")
    kinds: list[str | Path] = ["-f", "ONNX", "--bizCode", "x"]
    run([tool, *kinds, "--modelFile", task.model, "--MNNModel", made], task.model, made)


def mnn(task: Task) -> Call:
    package = import_module("MNN")
    interpreter = package.Interpreter(str(task.scratch / "model.mnn"))
    session = interpreter.createSession(
        {"numThread": task.threads, "precision": "high", "memory": "high", "backend": "CPU"}
    )
    layout = package.Tensor_DimensionType_Caffe
    kinds = {"f": package.Halide_Type_Float, "i": package.Halide_Type_Int}
    given = []
    for name, x in task.feeds.items():
        slot = interpreter.getSessionInput(session, name)
        interpreter.resizeTensor(slot, x.shape)
        given.append((slot, np.ascontiguousarray(_narrowed(x))))
    interpreter.resizeSession(session)
    made = {}
    for name, slot in interpreter.getSessionOutputAll(session).items():
        shape, kind = slot.getShape(), slot.getDataType()
        made[name] = slot, package.Tensor(shape, kind, np.empty(shape, np.float32), layout)

    def call() -> Arrays:
        for slot, x in given:
            slot.copyFrom(package.Tensor(x.shape, kinds[x.dtype.kind], x, layout))
        interpreter.runSession(session)
        for slot, host in made.values():
            slot.copyToHostTensor(host)
        return {name: host.getNumpyData().copy() for name, (_, host) in made.items()}

    return call


def torch(task: Task) -> Call:
    package = import_module("torch")
    package.set_num_threads(task.threads)
    # onnx2torch wants it for operators on boxes, which none of our nets has.
    for name in ("torchvision", "torchvision.ops"):
        stand_in = sys.modules.setdefault(name, ModuleType(name))
        stand_in.__dict__.setdefault("roi_align", None)
    config: Any = import_module("torch._inductor.config")
    config.freezing = True
    module = import_module("onnx2torch").convert(str(task.model)).eval()
    given = [package.from_numpy(x) for x in task.feeds.values()]
    if all(x.ndim == 4 for x in given):
        module = module.to(memory_format=package.channels_last)
        given = [x.contiguous(memory_format=package.channels_last) for x in given]
    with package.no_grad():
        fast = package.compile(_traced(package, module, given))
        fast(*given)

    def call() -> Arrays:
        with package.no_grad():
            found = fast(*given)
        several = found if isinstance(found, tuple | list) else [found]
        return {str(i): y.numpy() for i, y in enumerate(several)}

    return call


def _traced(package: Any, module: Any, given: list[Any]) -> Any:
    """Return a module of onnx2torch as one graph of PyTorch's operators, its shapes in numbers.

    Left as it is, it computes shapes from tensors, which torch.compile refuses or breaks graphs at.
    """
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    tracing.CONSTANT_NUMEL_LIMIT = SHAPE
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            value = attrgetter(node.target)(module)
        elif node.op == "call_module" and not node.args:
            value = module.get_submodule(node.target)()
        else:
            continue
        if value.ndim <= 1 and value.numel() <= SHAPE:
            with module.graph.inserting_after(node):
                literal = module.graph.call_function(
                    package.tensor, (value.tolist(),), {"dtype": value.dtype}
                )
            node.replace_all_uses_with(literal)
    module.recompile()
    return tracing.make_fx(module)(*given)


RUNTIMES: Mapping[str, Runtime] = {
    "alpenglow": Runtime(
        "alpenglow", "alpenglow", alpenglow, "fast numerics, no tuning record",
        precisions=("f32", "bf16"),
    ),
    "onnxruntime": Runtime(
        "onnxruntime", "onnxruntime", onnxruntime,
        "CPUExecutionProvider, all optimisations (its default), intra-op threads as given",
    ),
    "openvino": Runtime(
        "openvino", "openvino", openvino,
        "CPU, INFERENCE_PRECISION_HINT=f32 (bf16 where the net says so), "
        "PERFORMANCE_HINT=LATENCY, NUM_STREAMS=1, DYNAMIC_QUANTIZATION_GROUP_SIZE=0, "
        "static shapes, no pinning of its own",
        precisions=("f32", "bf16"),
    ),
    "ncnn": Runtime(
        "ncnn", "ncnn", ncnn,
        "converted by pnnx with fp16=0; fp16 and bf16 off, Winograd, sgemm and packing on "
        "(its defaults)", convert_for_ncnn,
    ),
    "mnn": Runtime(
        "MNN", "MNN", mnn, "converted by mnnconvert; CPU, precision high, memory high",
        convert_for_mnn,
    ),
    "torch": Runtime(
        "torch", "torch", torch,
        "converted by onnx2torch and traced; torch.compile (Inductor) with freezing, channels last",
    ),
}  # fmt: skip


def run(command: list[str | Path], model: Path, made: Path) -> None:
    """Run a converter unless `made` is there and newer than the model.

    Raises ValueError with the last lines that the converter says if it is not there then.
    """
    if made.exists() and made.stat().st_mtime > model.stat().st_mtime:
        return
    # MNN's converter would install a package for logging.
    offline = {**os.environ, "PIP_NO_INDEX": "1"}
    done = subprocess.run(command, env=offline, cwd=made.parent, capture_output=True, text=True)
    if done.returncode or not made.exists():
        said = [x for x in (done.stdout.strip() or done.stderr).splitlines() if x.strip()]
        why = " ".join(said[-2:]) or f"exit status {done.returncode}"
        raise ValueError(f"not converted: {why}")


# ── the process ──


class Server:
    """Answers requests about one runtime."""

    def __init__(self, name: str, threads: int) -> None:
        self.runtime = RUNTIMES[name]
        self.threads = threads
        self.call: Call | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a request asks for."""
        match request:
            case {"do": "load", "model": model, "feeds": feeds, "scratch": scratch}:
                with np.load(feeds) as arrays:
                    given = dict(arrays)
                precision = request.get("precision", "f32")
                task = Task(Path(model), given, self.threads, Path(scratch), precision)
                if precision not in self.runtime.precisions:
                    raise ValueError(f"it is not asked for {precision}")
                return self.load(task)
            case {"do": "burst", "warm": warm, "calls": calls, "seconds": seconds}:
                return {"times": times(self.loaded(), warm, calls, seconds)}
            case {"do": "results", "to": to}:
                found = self.loaded()()
                # Names may hold what no name in an archive can.
                np.savez(to, **{str(i): x for i, x in enumerate(found.values())})  # type: ignore[arg-type]
                return {"names": list(found)}
            case {"do": "memory"}:
                return {"peak": peak_memory()}
            case {"do": "limit"}:
                call = self.loaded()
                if not isinstance(call, Own):
                    raise ValueError("its kernels are unknown")
                return {"seconds": call.limit()}
        raise ValueError(f"{request} is no request")

    def load(self, task: Task) -> dict[str, Any]:
        if self.runtime.prepare is not None:
            self.runtime.prepare(task)
        import_module(self.runtime.module)
        begin = time.perf_counter()
        self.call = self.runtime.load(task)
        seconds = time.perf_counter() - begin
        self.call()
        return {"seconds": seconds, "version": version(self.runtime.package)}

    def loaded(self) -> Call:
        if self.call is None:
            raise ValueError("nothing is loaded")
        return self.call


def times(call: Callable[[], object], warm: int, calls: int, seconds: float = 0.0) -> list[float]:
    """Return the seconds of each of some calls, after `warm` that do not count.

    There are `calls` of them at least, and more until they have taken `seconds` together.  Where a
    call takes more than SLOW seconds there are no more than FEW, after one that does not count.
    Otherwise, as a virtual CPU that has been idle may at first share a core, more calls than `warm`
    do not count until these have taken twice `seconds`.
    """
    begun, made = time.perf_counter(), 0
    while made < warm or time.perf_counter() < begun + 2 * seconds:
        begin = time.perf_counter()
        call()
        made += 1
        if time.perf_counter() - begin > SLOW:
            calls = min(calls, FEW)
            break
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < calls or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def peak_memory() -> int:
    """Return the most bytes that this process ever had in memory."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None, "the system tells no high-water mark"
    return int(found[1]) * 1024


def main(name: str, threads: str, cpus: str) -> None:
    """Answer requests until there are no more."""
    os.sched_setaffinity(0, {int(c) for c in cpus.split(",")})
    os.environ["OMP_NUM_THREADS"] = threads
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server(name, int(threads))
    gc.disable()
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        # What a runtime may raise has no common root: all of it is the answer.
        except Exception as error:
            words = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {words}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
