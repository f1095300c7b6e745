"""Export networks of PyTorch's libraries as ONNX, with inputs and what torch makes of them.

    python tools/export_transformers.py --list
    python tools/export_transformers.py vit_s unet            two networks, of their real size
    python tools/export_transformers.py --small               all of them, small ones in seconds
    python tools/export_transformers.py --small --exporter script --opset 17
    python tools/export_transformers.py gpt2_with_past --opset 23 --to /tmp/models

A network goes to a folder of its own under `.models/exported`, small ones under
`.models/exported/small`: `model.onnx`, whose batch and lengths are open unless `--fixed`, and
`inputs_I.npz` with `outputs_I.npz` for the sizes it is usually run with and, unless `--fixed`, for
others.  `bench/compare.py --nets NAME` measures it.  Weights are seeded.  Needs PyTorch,
transformers, timm and onnxscript (`tools/install_torch.sh`).

`dynamo` is torch's exporter by torch.export, `script` the older one by TorchScript.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from decoders_torch import MERGED, PAST
from merge_decoders import BRANCH, merge
from networks_torch import NETWORKS, Input, Network

HOME = Path(__file__).resolve().parent.parent / ".models" / "exported"


def export_named(name: str, small: bool, to: Path, exporter: str, opset: int | None,
                 fixed: bool) -> None:  # fmt: skip
    """Write what a name stands for: a network, or two decoders as one."""
    if name not in MERGED:
        export(NETWORKS[name](small), to, exporter, opset, fixed)
        return
    begins, goes_on = (NETWORKS[part](small) for part in MERGED[name])
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / "begins", Path(folder) / "goes_on"]
        for network, part in zip((begins, goes_on), parts, strict=True):
            export(network, part, exporter, opset, fixed)
        to.mkdir(parents=True, exist_ok=True)
        onnx.save(merge(*(onnx.load(part / "model.onnx") for part in parts)), to / "model.onnx")
    without = {**begins.sizes, PAST: 0}
    for i, (one, other, sizes) in enumerate(
        [(goes_on, begins, goes_on.sizes), (begins, goes_on, without)]
    ):
        used = one.draw(sizes, seed=2 + i)
        flag = {BRANCH: torch.tensor([one is goes_on])}
        inputs = {**other.draw({**other.sizes, **sizes}, seed=4), **used, **flag}
        np.savez(to / f"inputs_{i}.npz", **arrays(inputs))
        np.savez(to / f"outputs_{i}.npz", **results_of(one, used))


def results_of(network: Network, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return what torch makes of inputs."""
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(network.module(*inputs.values()))
    return arrays(dict(zip(network.outputs, results, strict=True)))


def export(network: Network, to: Path, exporter: str, opset: int | None, fixed: bool) -> None:
    """Write the model, inputs and torch's outputs of a network into a folder."""
    to.mkdir(parents=True, exist_ok=True)
    usual, others = network.sizes, other_sizes(network.sizes)
    example = network.draw(usual if fixed else others, seed=1)
    settings: dict[str, Any] = {
        "input_names": list(network.inputs), "output_names": list(network.outputs),
        "opset_version": opset, "external_data": False,
    }  # fmt: skip
    axes = {name: open_axes(x) for name, x in network.inputs.items()}
    if exporter == "dynamo":
        shapes = tuple(axes.values())
        settings |= {"dynamo": True, "dynamic_shapes": None if fixed else in_order(network, shapes)}
    else:
        settings |= {"dynamo": False, "dynamic_axes": None if fixed else axes}
    with torch.no_grad():
        torch.onnx.export(network.module, tuple(example.values()), str(to / "model.onnx"),
                          **settings)  # fmt: skip
    for i, sizes in enumerate([usual] if fixed else [usual, others]):
        inputs = network.draw(sizes, seed=2 + i)
        np.savez(to / f"inputs_{i}.npz", **arrays(inputs))
        np.savez(to / f"outputs_{i}.npz", **results_of(network, inputs))


def arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return tensors as arrays."""
    return {name: x.detach().numpy() for name, x in tensors.items()}


def other_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """Return sizes none of which is 1 or that of another: exporters take these for constants.

    None of what is long becomes longer, for networks have a greatest length.
    """
    return {name: 2 if "batch" in name else size // 2 + i if size > 8 else size + 3 + i
            for i, (name, size) in enumerate(sizes.items())}  # fmt: skip


def open_axes(x: Input) -> dict[int, str]:
    """Return the names of an input's open axes."""
    return {i: e for i, e in enumerate(x.shape) if isinstance(e, str)}


def in_order(network: Network, shapes: tuple[dict[int, str], ...]) -> Any:
    """Return the open axes as torch.export wants them: by parameter, those of `*name` in one."""
    code = network.module.forward.__code__
    count = code.co_argcount - 1
    if not code.co_flags & 0x04:  # it takes no *name
        return shapes
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return {**dict(zip(code.co_varnames[1 : count + 1], shapes, strict=False)),
            rest: shapes[count:]}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="networks (default: all)")
    parser.add_argument("--list", action="store_true", help="say what there is, and nothing else")
    parser.add_argument("--small", action="store_true", help="as small as a test wants them")
    parser.add_argument("--exporter", choices=("dynamo", "script"), default="dynamo")
    parser.add_argument("--opset", type=int, help="default: what the exporter prefers")
    parser.add_argument("--fixed", action="store_true", help="no open extents")
    parser.add_argument("--to", type=Path, help=f"folder for all of them (default: {HOME})")
    options = parser.parse_args()
    if options.list:
        for name, make in NETWORKS.items():
            print(f"{name:32} {(make.__doc__ or '').splitlines()[0]}")
        for name, parts in MERGED.items():
            print(f"{name:32} {' and '.join(parts)} in one file, between which an If chooses.")
        return 0
    known = [*NETWORKS, *MERGED]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no network is called {', '.join(unknown)}; --list says what there is")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    home = options.to or (HOME / "small" if options.small else HOME)
    names = options.names or known
    failed = 0
    for i, name in enumerate(names, 1):
        say(f"{i}/{len(names)} {name} …")
        began = time.perf_counter()
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
                export_named(name, options.small, home / name, options.exporter, options.opset,
                             options.fixed)  # fmt: skip
        except Exception as error:  # whatever torch's exporters raise is of this network alone
            failed += 1
            print(f"{name:32} failed: {type(error).__name__}: {reason(error)}", flush=True)
            continue
        nbytes = (home / name / "model.onnx").stat().st_size
        print(f"{name:32} {nbytes / 1e6:8.1f} MB {time.perf_counter() - began:6.1f} s", flush=True)
    return min(failed, 1)


def say(text: str) -> None:
    """Show a line that the next one overwrites, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}\r", end="", file=sys.stderr, flush=True)


def reason(error: BaseException) -> str:
    """Return the first line of the last cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


if __name__ == "__main__":
    sys.exit(main())
