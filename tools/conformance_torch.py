"""Run PyTorch's own samples of its operators (OpInfo) through the converters.

    python tools/conformance_torch.py                          all operators, f32
    python tools/conformance_torch.py --ops '^nn.functional' --dtype float32 --first
    python tools/conformance_torch.py --ops '^softmax$' --verbose

Each sample is traced to ATen, decomposed as far as there are no converters, imported, run, and
compared with eager under torch's own tolerances.  `--target cpu` compiles; the default,
`interpreter`, checks the converters alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
import warnings
from collections import Counter
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
from alpenglow.frontends.torch.importer import graph_of

DECOMPOSITIONS: dict[Any, Any] = {}


def check(op: Any, sample: Any, target: str) -> tuple[str, str]:
    """Return what became of a sample (right, wrong, refused, untraced, failed), and why."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]

    def call(*xs: Any) -> list[Any]:
        filled = list(leaves)
        for i, x in zip(at, xs, strict=True):
            filled[i] = x
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        made = pytree.tree_leaves(op(x, *args, **kwargs))
        return [y for y in made if isinstance(y, torch.Tensor)]

    try:
        expected = call(*(x.clone() for x in tensors))
        module = traced(traced(call, tensors), tensors)  # decompositions mutate what they make
    except Exception as error:
        return "untraced", f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    try:
        graph = graph_of(fx.traced(module))
        exe = ag.compile(graph, target)
        arrays = [fx.array_of(x) for x in tensors]
        feeds = dict(zip(graph.inputs, arrays, strict=True))
        got = list(exe.run(feeds).values())
    except UnsupportedError as error:
        return "refused", error.message
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()[:2000]
    if len(got) != len(expected):
        return "failed", f"{len(got)} results of {len(expected)}"
    for y, e in zip(got, expected, strict=True):
        message = differs(y, e)
        if message:
            return "wrong", message
    return "right", ""


def traced(call: Any, tensors: list[Any]) -> Any:
    """Return a call as a graph of operators that have converters, or no decomposition."""
    functional = torch.func.functionalize(call, remove="mutations_and_views")
    tracer = make_fx(functional, decomposition_table=DECOMPOSITIONS, tracing_mode="fake",
                     _allow_non_fake_inputs=True)  # fmt: skip
    return tracer(*tensors)


def differs(y: Any, expected: Any) -> str:
    """Return how a result differs from what torch made; "" if it does not by its tolerances."""
    reference = fx.array_of(expected)
    if y.shape != reference.shape or y.dtype != reference.dtype:
        return f"made {y.dtype}{y.shape}, expected {reference.dtype}{reference.shape}"
    made = y.view(np.int16) if y.dtype.name == "bfloat16" else y
    tensor = torch.from_numpy(np.array(made)).reshape(expected.shape)
    tensor = tensor.view(torch.bfloat16) if y.dtype.name == "bfloat16" else tensor
    try:
        torch.testing.assert_close(tensor, expected.detach().contiguous(), equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:300]
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ops", default="", help="regular expression of names")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--first", action="store_true", help="only the first sample of each")
    parser.add_argument("--target", default="interpreter")
    parser.add_argument("--share", default="0/1", help="k/n: every n-th operator from k on")
    parser.add_argument("--verbose", action="store_true", help="each bad sample")
    parser.add_argument("--json", type=Path, help="write results there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    DECOMPOSITIONS.update(fx.decompositions())
    dtype = getattr(torch, options.dtype)
    ops = [o for o in op_db if dtype in o.supported_dtypes("cpu")]
    ops = [o for o in ops if re.search(options.ops, name(o))]
    k, n = map(int, options.share.split("/"))
    records: dict[str, dict[str, Any]] = {}
    for op in ops[k::n]:
        torch.manual_seed(0)
        np.random.seed(0)
        began = time.perf_counter()
        counts: Counter[str] = Counter()
        why = ""
        for i, sample in enumerate(op.sample_inputs("cpu", dtype)):
            outcome, message = check(op, sample, options.target)
            counts[outcome] += 1
            if outcome != "right":
                why = why or f"{outcome}: {message}"
                if options.verbose:
                    print(f"  {i} {outcome}: {message}", flush=True)
            if options.first:
                break
        took = time.perf_counter() - began
        state = "OK " if set(counts) <= {"right"} else "BAD"
        records[name(op)] = {"counts": dict(counts), "why": why, "seconds": took}
        print(f"{state} {name(op)} {dict(counts)} {took:.1f}s {why[:400]}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(records, indent=1))
    good = sum(set(r["counts"]) <= {"right"} for r in records.values())
    print(f"{good} of {len(records)} operators: all samples right")
    return 0


def name(op: Any) -> str:
    return str(op.name) + (f".{op.variant_test_name}" if op.variant_test_name else "")


if __name__ == "__main__":
    sys.exit(main())
