"""Record calls of PyTorch's operators, each checked against PyTorch, as goldens of the converters.

    .venv/torch/bin/python -m tests.frontends.torch.record [--jobs N]

The calls come from PyTorch's samples of its operators, which are traced before and after they are
decomposed, and with their gradients, and from ``calls.txt``.  A call is kept if its arguments have
other values, element types or ranks than earlier calls of the operator.  A call whose result
differs from eager's, evaluated in NumPy, is printed and not kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers operators
from tests.frontends.goldens import FOLDER
from tests.frontends.torch.calls import Recorded, graph_of_call, read_call, shown_arguments
from tests.frontends.torch.merge import MOST, Arguments, merge, spread
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.torch import converters, fx
from alpenglow.frontends.torch.generator import state_of
from alpenglow.ir.types import TensorType

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from judge_torch import differs, tensors_of

SEED = 42
SAMPLES = {torch.float32: 4, torch.int64: 1, torch.complex64: 1}
"""Of how many samples of an operator calls are taken, by element type."""

MORE_OF = 1
"""Of how many samples in f32 the gradients and the calls above autograd are taken, too."""

SKIPPED = re.compile(
    r"jiterator|signal\.|masked\."
    r"|special\.(cheb|herm|lag|leg|mod|scaled|shifted|spher|bessel|airy)"
    r"|linalg\.(pinv|matrix_|cond|lstsq|tensor|svd|norm|vander|multi_dot|eig|house|cross|vec)"
    r"|fft\.(fft2|fftn|hfft2|hfftn|rfft2|ifftn|ihfft|irfftn|fftshift|ifftshift)"
    r"|nn\.functional\.(cosine_emb|gaussian_nll|hinge|huber|poisson|kl_div|pairwise)"
)
"""Operators that are not sampled: what they call, others call as well, or it has no converter."""

LARGEST = 4096
"""Tensors of a call have no more elements: evaluation is to take no time."""

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
MORE = FOLDER / "torch" / "calls.txt"

Calls = dict[str, dict[str, Arguments]]
"""By operator: what it was called with, by the text of that."""


# ── what calls there are ──


class Watch(TorchDispatchMode):
    """Takes down the calls below autograd, those without a converter as torch decomposes them."""

    def __init__(self, table: Mapping[Any, Any], calls: Calls) -> None:
        super().__init__()
        self.table = table
        self.calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        names = [a.name for a in func._schema.arguments]
        arguments = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        noted(self.calls, functional(func), arguments)
        if converters.find(fx.target_of(func)) is None and func in self.table:
            with self:
                return self.table[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def functional(op: Any) -> Any:
    """Return the operator that makes what another one writes into its operand, or that itself."""
    packet = getattr(torch.ops.aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
    return getattr(packet, op._overloadname, op) if op._schema.is_mutable else op


class WatchTraced(torch.fx.Interpreter):
    """Runs a traced program, and takes down its calls."""

    def __init__(self, module: Any, calls: Calls) -> None:
        super().__init__(module)
        self.calls = calls

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch._ops.OpOverload):
            names = [a.name for a in target._schema.arguments]
            noted(self.calls, target, {**dict(zip(names, args, strict=False)), **kwargs})
        return super().call_function(target, args, kwargs)


def noted(calls: Calls, target: Any, arguments: Arguments) -> None:
    """Take down a call of an operator that has a converter."""
    name = fx.target_of(target)
    if converters.find(name) is None or target._schema.is_mutable:
        return
    leaves = tensors_of(dict(arguments))
    if any(x.numel() > LARGEST or not fx.lies_in_order(x) for x in leaves):
        return
    text = shown_arguments({k: ours(v) for k, v in arguments.items()})
    if "<" not in text:
        copied = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x,
                                 dict(arguments))  # fmt: skip
        calls[name].setdefault(text, copied)


def ours(value: Any) -> Any:
    """Return an argument of torch's as a recorded call has it."""
    match value:
        case torch.Tensor():
            t = fx.type_of(value)
            assert t is not None
            return t
        case list() | tuple():
            return tuple(map(ours, value))
        case torch.dtype():
            return fx.DTYPES[str(value).removeprefix("torch.")]
        case torch.device() | torch.layout() | torch.memory_format():
            return str(value)
    return value


def watch_sample(
    op: Any, sample: Any, table: Mapping[Any, Any], more: bool, calls: Calls
) -> None:
    """Take down the calls of a sample; those above autograd and of its gradients if `more`."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]

    def call(*xs: Any) -> list[Any]:
        filled = list(leaves)
        for i, x in zip(at, xs, strict=True):
            filled[i] = x.clone()
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        return tensors_of(op(x, *args, **kwargs))

    def backward() -> None:
        xs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]
        ys = [y for y in call(*xs) if y.requires_grad]
        asked = [x for x in xs if x.requires_grad]
        torch.autograd.grad(ys, asked, [torch.ones_like(y) for y in ys], allow_unused=True)

    def above() -> None:
        WatchTraced(make_fx(call, pre_dispatch=True)(*tensors), calls).run(*tensors)

    ways = [partial(call, *tensors), *([backward] if more and op.supports_autograd else [])]
    for way in ways:
        with suppress(Exception), Watch(table, calls):  # some samples are errors
            way()
    if more:
        with suppress(Exception):
            above()


def of_samples(op: Any, table: Mapping[Any, Any]) -> Calls:
    """Return the calls that PyTorch's samples of an operator make."""
    calls: Calls = defaultdict(dict)
    for dtype, count in SAMPLES.items():
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        np.random.seed(0)
        try:
            samples = list(op.sample_inputs("cpu", dtype))
        except Exception:
            continue
        step = max(len(samples) / count, 1)
        for i in range(min(count, len(samples))):
            more = dtype == torch.float32 and i < MORE_OF
            watch_sample(op, samples[int(i * step)], table, more, calls)
    return calls


def of_lines() -> Calls:
    """Return the calls that `MORE` lists; their tensors are drawn."""
    calls: Calls = {}
    generator = torch.Generator().manual_seed(SEED)
    for line in MORE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        call = read_call(f"{line} -> None")
        arguments = {n: theirs(n, v, generator) for n, v in call.arguments.items()}
        text = line.partition("(")[2].removesuffix(")")
        calls.setdefault(call.target, {})[text] = arguments
    return calls


def theirs(name: str, value: Any, generator: torch.Generator) -> Any:
    """Return an argument as torch takes it; tensors are drawn, and integers are 0 or 1."""
    match value:
        case TensorType():
            dtype = next(getattr(torch, k) for k, v in fx.DTYPES.items() if v == value.dtype)
            if dtype.is_floating_point or dtype.is_complex:
                return torch.randn(value.shape, generator=generator).to(dtype)
            return torch.randint(0, 2, value.shape, generator=generator).to(dtype)
        case np.ndarray():
            return torch.from_numpy(value.copy())
        case tuple():
            return [theirs(name, v, generator) for v in value]
        case str() if name.endswith("dtype"):
            return next(getattr(torch, k) for k, v in fx.DTYPES.items() if v == value)
    return value


# ── what is kept of them ──


def operator_of(name: str) -> Any:
    """Return the operator of torch that has a name."""
    space, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload)


def recorded(name: str, text: str, arguments: Arguments, reading: bool) -> tuple[Recorded, str]:
    """Return a call whose results are all read, or the first alone, and what is wrong with it."""
    target = operator_of(name)
    torch.manual_seed(SEED)
    state = state_of(torch.get_rng_state().numpy().tobytes())
    copied = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x,
                             dict(arguments))  # fmt: skip
    made = target(**copied) if "self" not in copied else target(copied.pop("self"), **copied)
    results = list(made) if isinstance(made, tuple | list) else [made]
    types = tuple(
        (fx.type_of(y), reading or i == 0) if isinstance(y, torch.Tensor) else None
        for i, y in enumerate(results)
    )
    call = read_call(f"{name}({text}) -> None")
    call = Recorded(name, call.arguments, types)
    graph = graph_of_call(call, state)
    inputs = [fx.array_of(x) for n, v in call.arguments.items() for x in fed(v, arguments[n])]
    got = list(evaluate(graph, dict(zip(graph.callers_inputs(), inputs, strict=True))).values())
    wanted = [y for y, t in zip(results, types, strict=True) if t is not None and t[1]]
    if name in UNSET:
        return call, ""
    return call, next(filter(None, map(close, got, wanted)), "")


def fed(shown: Any, value: Any) -> list[Any]:
    """Return the tensors of an argument that are inputs, which texts show as types."""
    if isinstance(shown, tuple):
        return [x for s, v in zip(shown, value, strict=True) for x in fed(s, v)]
    return [value] if isinstance(shown, TensorType) else []


UNSET = frozenset({"aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
                   "aten.empty_strided.default", "aten.new_empty_strided.default",
                   "aten.resize.default", "prims.empty_strided.default"})  # fmt: skip
"""Operators whose results hold whatever lay there."""


def close(y: Any, wanted: Any) -> str:
    halves = wanted.dtype in (torch.bfloat16, torch.float16)
    return differs(y, wanted, {"rtol": 2e-2, "atol": 2e-2} if halves else CLOSE)


def kept(target: str, calls: Mapping[str, Arguments]) -> Iterator[Recorded]:
    """Yield the calls of an operator that are recorded."""
    types = {text: {k: ours(v) for k, v in arguments.items()} for text, arguments in calls.items()}
    for text in spread(types, MOST):
        said = ""
        for reading in (True, False):
            try:
                call, wrong = recorded(target, text, calls[text], reading)
            except AlpenglowError as error:
                said = f"refused {target}({text}): {error.message}"
                continue
            except Exception as error:  # of torch: a call that cannot be made by itself
                said = f"failed {target}({text}): {type(error).__name__}: {error}".splitlines()[0]
                break
            said = f"WRONG {target}({text}): {wrong}" if wrong else ""
            if not wrong:
                yield call
            break
        if said:
            print(said, flush=True)


def record_share(share: str, lines: Path) -> None:
    """Append the calls of every n-th operator from k on to a file, as soon as they are checked."""
    k, n = map(int, share.split("/"))
    table = fx.decompositions()
    ops = [op for op in op_db if not SKIPPED.match(op.name)][k::n]
    sources = [*([of_lines] if k == 0 else []), *(partial(of_samples, op, table) for op in ops)]
    noted_before: set[str] = set()
    with lines.open("a", encoding="utf-8") as out:
        for source in sources:
            for target, calls in source().items():
                new = {t: a for t, a in calls.items() if f"{target}({t})" not in noted_before}
                noted_before |= {f"{target}({t})" for t in new}
                for call in kept(target, new):
                    out.write(f"{call}\n")
            out.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--share", help="k/n: record every n-th operator from k on, in --lines")
    parser.add_argument("--lines", type=Path, nargs="*", help="files of calls; these are merged")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if asked.share:
        record_share(asked.share, asked.lines[0])
        return 0
    if asked.lines:
        merge(asked.lines)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{k}.txt" for k in range(asked.jobs)]
        shares = [[sys.executable, "-m", __spec__.name, "--share", f"{k}/{asked.jobs}", "--lines",
                   str(file)] for k, file in enumerate(files)]  # fmt: skip
        for process in [subprocess.Popen(share) for share in shares]:
            process.wait()
        merge(files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
