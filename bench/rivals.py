"""The process of any runtime of the benchmark: how each is loaded, converted for, and asked.

    python rivals.py NAME THREADS CPUS

It is run as `alpenglow/measure/server.py` is, by whichever Python has the runtime, and answers more
requests:

    {"do": "results", "to": FILE.npz}  =>  {"names": […]}
    {"do": "memory"}                   =>  {"peak": BYTES}
    {"do": "limit"}                    =>  {"seconds"}

The last is for Alpenglow alone: what its kernels cannot take less than (see `measure.limit`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SHAPE = 8
"""Vectors of so many elements may be shapes or paddings."""


def _server() -> ModuleType:
    """Import the server by its path: who has another runtime need not have Alpenglow."""
    path = Path(__file__).resolve().parent.parent / "src/alpenglow/measure/server.py"
    spec = spec_from_file_location("rivals_server", path)
    assert spec is not None and spec.loader is not None, f"{path} is a module"
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


server = _server()
Array, Arrays, Call, Task, Runtime = (
    server.Array, server.Arrays, server.Call, server.Task, server.Runtime,
)  # fmt: skip


class Own:
    """A call of Alpenglow, which can also tell the limit of its kernels."""

    def __init__(self, exe: Any, feeds: Mapping[str, Array], threads: int) -> None:
        self.exe, self.feeds, self.threads = exe, feeds, threads

    def __call__(self) -> Arrays:
        return dict(self.exe.run(self.feeds))

    def limit(self) -> float | None:
        module = import_module("alpenglow.measure.limit")
        seconds: float | None = module.limit(self.exe, self.threads)
        return seconds


def alpenglow(task: Task) -> Call:
    ag = import_module("alpenglow")
    if task.model.suffix == ".ago":
        exe = ag.open(task.model, task.threads)
    else:
        shapes = {name: x.shape for name, x in task.feeds.items()}
        precision = task.precision
        exe = ag.compile(task.model, threads=task.threads, shapes=shapes, precision=precision)
    return Own(exe, task.feeds, task.threads)


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
        outputs = request.infer(feeds, share_inputs=False, share_outputs=False)
        return {key.get_any_name(): x for key, x in outputs.items()}

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
    "onnxruntime": server.ONNX_RUNTIME,
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


def peak_memory() -> int:
    """Return the most bytes that this process ever had in memory."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None, "the system tells no high-water mark"
    return int(found[1]) * 1024


class Server(server.Server):
    """Answers about what a call returns and needs, too."""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request:
            case {"do": "results", "to": to}:
                outputs = self.loaded()()
                # Names may hold what no name in an archive can.
                np.savez(to, **{str(i): x for i, x in enumerate(outputs.values())})
                return {"names": list(outputs)}
            case {"do": "memory"}:
                return {"peak": peak_memory()}
            case {"do": "limit"}:
                call = self.loaded()
                if not isinstance(call, Own):
                    raise ValueError("its kernels are unknown")
                return {"seconds": call.limit()}
        return super().answer(request)


if __name__ == "__main__":
    _, name, threads, cpus = sys.argv
    server.serve(Server(RUNTIMES[name], int(threads)), cpus)
