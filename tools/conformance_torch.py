"""Run PyTorch's own samples of its operators (OpInfo) through the converters.

    python tools/conformance_torch.py                          all operators, f32
    python tools/conformance_torch.py --ops '^nn.functional' --dtype float32 --first
    python tools/conformance_torch.py --ops '^softmax$' --verbose
    python tools/conformance_torch.py --dynamo --first         through torch.compile
    python tools/conformance_torch.py --modules --ops LSTM     modules (module_db), exported
    python tools/conformance_torch.py --modules --backward     a step of training, torch.compile
    python tools/conformance_torch.py --gradients --dtype float64 --first
    python tools/conformance_torch.py --page --jobs 2          all; writes docs/conformance-torch.md

Each sample is traced to ATen, decomposed as far as there are no converters, imported, run, and
compared with eager under torch's own tolerances.  `--target cpu` compiles; the default,
`interpreter`, checks the converters alone.  With `--dynamo` samples go through torch.compile, where
what is not converted would run in eager; it counts as such.  All suites take about two hours on
one core; with `--page --keep FOLDER` those that ended are not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.model import model_of
from alpenglow.frontends.torch.refusals import listed
from alpenglow.torch.backend import recording
from conformance_torch_page import is_right, page
from gradients_torch import check_gradients
from judge_torch import WIDER, alike, differs, mistyped, nearer, tensors_of, tolerance
from modules_torch import check_backward, check_module, module_entries

SEED = 42
"""What OpInfo's samples of random numbers seed the generator with (wrapper_set_seed)."""

DECOMPOSITIONS: dict[Any, Any] = {}
UNSET = re.compile(r"(new_)?empty(_.*)?")
"""Operators whose results hold whatever lay there: of these, types and shapes are compared."""


def check(op: Any, sample: Any, determined: Sequence[Any], target: str) -> tuple[str, str]:
    """Return what became of a sample (right, nearer, wrong, refused, untraced, failed), and why.

    `determined` are functions of a result that tell the parts of it that count.
    """
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]

    def whole(*xs: Any, wider: bool = False) -> Any:
        filled = [WIDER.get(x, x) if isinstance(x, torch.dtype) and wider else x for x in leaves]
        for i, x in zip(at, xs, strict=True):
            filled[i] = x.clone()  # operators may write into it
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op(x, *args, **kwargs)

    def call(*xs: Any) -> list[Any]:
        return tensors_of(whole(*xs))

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            made = whole(*tensors)
        module = traced(traced(call, tensors), tensors)  # decompositions mutate what they make
    except Exception as error:
        return "untraced", f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = model_of(fx.traced(module, draws=True))
        exe = ag.compile(model, target)
        arrays = [fx.array_of(x) for x in tensors]
        given = model.callers_inputs() if isinstance(model, ag.Graph) else model.inputs
        feeds = dict(zip(given, arrays, strict=True))
        got = list(exe.run(feeds).values())
    except UnsupportedError as error:
        return "refused", error.message
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()[:2000]
    expected = tensors_of(made)
    if len(got) != len(expected):
        return "failed", f"{len(got)} results of {len(expected)}"
    if wrong := next(filter(None, map(mistyped, got, expected)), ""):
        return "wrong", wrong
    if UNSET.fullmatch(op.name):
        return "right", ""
    allowed = tolerance(op, expected)
    message = next(filter(None, (differs(y, e, allowed)
                                 for y, e in zip(got, expected, strict=True))), "")  # fmt: skip
    if not message or alike(determined, made, got):
        return "right", ""
    return ("nearer" if nearer(whole, tensors, expected, got) else "wrong"), message


def check_compiled(op: Any, sample: Any) -> tuple[str, str]:
    """Return what torch.compile makes of a sample: right, wrong, eager (of a part), failed."""
    torch._dynamo.reset()

    def call(x: Any, args: Any, kwargs: Any) -> Any:
        return op.op(x, *args, **kwargs)

    given = (sample.input, sample.args, sample.kwargs)
    try:
        torch.manual_seed(0)
        expected = tensors_of(call(*copied(given)))
    except Exception as error:
        return "untraced", f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    try:
        with recording() as record, torch.no_grad():
            torch.manual_seed(0)
            got = tensors_of(torch.compile(call, backend="alpenglow")(*copied(given)))
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()[:2000]
    for y, e in zip(got, expected, strict=True):
        if UNSET.fullmatch(op.name) and y.shape == e.shape:
            y = torch.empty_strided(y.shape, y.stride(), dtype=y.dtype).copy_(e)
        try:
            torch.testing.assert_close(y, e, equal_nan=True, check_stride=True)
        except AssertionError as error:
            return "wrong", str(error).replace("\n", " ")[:300]
    refusals = [r for _, plan in record.plans for r in plan.refusals]
    if refusals:
        return "eager", listed(refusals)
    return ("right", "") if record.plans else ("eager", "Dynamo traced no graph")


def copied(tree: Any) -> Any:
    """Return arguments with tensors of their own: operators may write into them."""
    return pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, tree)


def traced(call: Any, tensors: list[Any]) -> Any:
    """Return a call as a graph of operators that have converters, or no decomposition."""
    functional = torch.func.functionalize(call, remove="mutations_and_views")
    tracer = make_fx(functional, decomposition_table=DECOMPOSITIONS, tracing_mode="fake",
                     _allow_non_fake_inputs=True)  # fmt: skip
    return tracer(*tensors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ops", default="", help="regular expression of names")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--first", action="store_true", help="only the first sample of each")
    parser.add_argument("--dynamo", action="store_true", help="through torch.compile")
    parser.add_argument("--gradients", action="store_true", help="gradients beside autograd's")
    parser.add_argument("--modules", action="store_true", help="modules instead of operators")
    parser.add_argument("--backward", action="store_true", help="with --modules: train them")
    parser.add_argument("--target", default="interpreter")
    parser.add_argument("--share", default="0/1", help="k/n: every n-th operator from k on")
    parser.add_argument("--verbose", action="store_true", help="each bad sample")
    parser.add_argument("--json", type=Path, help="write results there")
    parser.add_argument("--page", action="store_true", help="run all, and write the page")
    parser.add_argument("--jobs", type=int, default=2, help="processes, with --page")
    parser.add_argument("--keep", type=Path, help="where results lie and stay, with --page")
    options = parser.parse_args()
    if options.page:
        return write_page(options.jobs, options.keep)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    DECOMPOSITIONS.update(fx.decompositions())
    k, n = map(int, options.share.split("/"))
    records: dict[str, Any] = {}
    words = [w for w in ("modules", "backward", "gradients") if getattr(options, w)]
    ops = chosen(options.ops, options.dtype, words)
    for op in ops[k::n]:
        records[name(op)] = {"counts": {"failed": 1}, "why": "failed: the process died"}
        if options.json:  # before it runs: some operators end the process
            options.json.write_text(json.dumps(records, indent=1))
        records[name(op)] = record = entry(op, options)
        state = "OK " if is_right(record) else "BAD"
        why = record["why"][:400]
        print(f"{state} {name(op)} {record['counts']} {record['seconds']:.1f}s {why}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(records, indent=1))
    good = sum(map(is_right, records.values()))
    print(f"{good} of {len(records)} operators: all samples right")
    return 0


def entry(op: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Return what became of the samples of an operator, and the first reason that one was bad."""
    torch.manual_seed(0)
    np.random.seed(0)
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    why = ""
    more = {"requires_grad": True} if options.gradients else {}
    try:
        samples = list(op.sample_inputs("cpu", getattr(torch, options.dtype), **more))
    except Exception as error:
        why = f"untraced: {type(error).__name__}: {str(error).splitlines()[:1]}"
        return {"counts": {"untraced": 1}, "why": why, "seconds": time.perf_counter() - began}
    parts = {} if options.modules else {
        s.output_process_fn_grad.__code__: s.output_process_fn_grad for s in samples
    }  # fmt: skip
    for i, sample in enumerate(samples):
        if options.modules and options.backward:
            outcome, message = check_backward(sample)
        elif options.modules:
            outcome, message = check_module(sample, options.target, differs)
        elif options.gradients:
            outcome, message = check_gradients(op, sample, options.target, traced)
        elif options.dynamo:
            outcome, message = check_compiled(op, sample)
        else:
            outcome, message = check(op, sample, list(parts.values()), options.target)
        counts[outcome] += 1
        if outcome != "right":
            why = why or f"{outcome}: {message}"
            if options.verbose:
                print(f"  {i} {outcome}: {message}", flush=True)
        if options.first:
            break
    return {"counts": dict(counts), "why": why, "seconds": time.perf_counter() - began}


def chosen(pattern: str, dtype: str, words: Sequence[str]) -> list[Any]:
    """Return the operators or modules that have an element type, and a name that fits.

    Of the `words` count "modules", which may be in training ("backward"), and "gradients".
    """
    kind = getattr(torch, dtype)
    ops: list[Any]
    if "modules" in words:
        ops = list(module_entries(kind, "backward" in words))
    else:
        ops = [o for o in op_db if kind in o.supported_dtypes("cpu")]
    if "gradients" in words:
        ops = [o for o in ops if o.supports_autograd]
    return [o for o in ops if re.search(pattern, name(o))]


def name(op: Any) -> str:
    return str(op.name) + (f".{op.variant_test_name}" if op.variant_test_name else "")


# ── the page ──

SUITES = {
    "f32": ("float32",),
    "f32, first sample, torch.compile": ("float32", "--dynamo", "--first"),
    "i64": ("int64",),
    "bool": ("bool",),
    "bf16": ("bfloat16",),
    "gradients, f64, first sample": ("float64", "--gradients", "--target", "cpu", "--first"),
    "modules, f32": ("float32", "--modules"),
    "modules in training, f32, torch.compile": ("float32", "--modules", "--backward"),
}
"""What the page tells of: the element type, and further arguments of this program."""

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance-torch.md"


def write_page(jobs: int, keep: Path | None) -> int:
    """Run all suites and write the page of those that ended.

    Results are written to `keep`; of what has one there, by an earlier run of the same code,
    nothing is run again.
    """
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    suites = {}
    for suite, (dtype, *words) in SUITES.items():
        place = keep and keep / f"{'-'.join([dtype, *(w.strip('-') for w in words)])}.json"
        records = json.loads(place.read_text()) if place and place.exists() else {}
        suites[suite] = together(dtype, words, jobs, records)
        if place:
            place.write_text(json.dumps(suites[suite], indent=1))
        good = sum(map(is_right, suites[suite].values()))
        print(f"{suite}: {good} of {len(suites[suite])} all right", flush=True)
        PAGE.write_text("\n".join(page(suites, torch.__version__.split("+")[0])) + "\n")
    return 0


def together(dtype: str, words: list[str], jobs: int, records: dict[str, Any]) -> dict[str, Any]:
    """Run what has no record yet in processes; one that dies is begun again behind its end."""
    names = [name(o) for o in chosen("", dtype, [w.removeprefix("--") for w in words])]
    with tempfile.TemporaryDirectory() as scratch:
        while missing := [n for n in names if n not in records]:
            running = []
            for k in range(jobs):
                share = "|".join(f"^{re.escape(n)}$" for n in missing[k::jobs])
                if not share:
                    continue
                place = Path(scratch) / f"{k}.json"
                place.unlink(missing_ok=True)
                command = [sys.executable, __file__, "--dtype", dtype, "--ops", share,
                           "--json", str(place), *words]  # fmt: skip
                quiet = subprocess.DEVNULL
                running.append((place, subprocess.Popen(command, stdout=quiet, stderr=quiet)))
            before = len(records)
            for place, process in running:
                process.wait()
                if place.exists():
                    records |= json.loads(place.read_text())
            assert len(records) > before, "no process came as far as an operator"
    return {n: records[n] for n in names}


if __name__ == "__main__":
    sys.exit(main())
