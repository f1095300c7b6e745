"""Run networks of PyTorch's libraries, exported or compiled, and compare them with eager.

    python tools/models_torch.py --family torchvision
    python tools/models_torch.py --family timm --names 'vit|swin' --share 0/4
    python tools/models_torch.py --family timm --target interpreter --all
    python tools/models_torch.py --family transformers
    python tools/models_torch.py --family transformers --way compile     through torch.compile

Weights are random.  Of timm it is one network of each of its modules, a small one by its name,
unless `--all`; those of transformers are tiny (`tests/pytorch/families.py`).  Each network runs in
a process of its own: one that needs too much takes nobody along.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "pytorch"))

from torch_zoo import (  # noqa: E402
    Outcome,
    import_timm,
    import_torchvision,
    judged,
    judged_compiled,
    seeded,
    tensors_of,
)

SIDES = (96, 128, 160, 192, 224, 240, 256, 299, 331, 384, 448, 512, 518, 546)
"""Images are squares of the smallest of these that a network takes."""


def names(family: str, every: bool) -> Iterator[str]:
    """Yield the names of the networks of a family."""
    if family == "torchvision":
        models = import_torchvision().models
        yield from models.list_models(module=models)
        for kind in (models.segmentation, models.video, models.optical_flow):
            family = kind.__name__.rpartition(".")[2]
            yield from (f"{family}/{n}" for n in models.list_models(module=kind))
        return
    if family == "transformers":
        yield from families()
        return
    timm = import_timm()
    for module in timm.list_modules():
        members = timm.list_models(module=module)
        yield from members if every else [min(members, key=largeness)] if members else []


def families() -> dict[str, Any]:
    """Return what makes networks of transformers, which is imported for them alone."""
    return dict(import_module("families").FAMILIES)


SMALL = ("test", "atto", "femto", "pico", "nano", "xxs", "xx_small", "tiny", "mini", "micro", "xs",
         "small", "_ti", "_t0", "_s", "050", "121", "14", "18", "26", "lite", "b0")  # fmt: skip
"""What names of small networks have in them, the smallest first."""


def largeness(name: str) -> tuple[int, int, str]:
    """Return a rank of names by how large their networks seem: to build them all takes minutes."""
    return next((i for i, word in enumerate(SMALL) if word in name), len(SMALL)), len(name), name


def built(family: str, name: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a network with random weights, and arguments of the smallest size that it takes."""
    torch.manual_seed(0)
    if family == "transformers":
        net, inputs = families()[name]()
        return net, (), inputs
    return *of_images(family, name), {}


def of_images(family: str, name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Return a network on images, and the smallest that it takes."""
    if family == "timm":
        net = import_timm().create_model(name)
        config = net.default_cfg
        channels, side, _ = config["input_size"]
        fixed = config.get("fixed_input_size")
        sides = [side] if fixed else [*(s for s in SIDES if s < side), side]
        return fitting(seeded(net), [(torch.randn(1, channels, s, s),) for s in sides])
    kind, _, short = name.rpartition("/")
    more = {"weights_backbone": None} if kind == "segmentation" else {}
    net = import_torchvision().models.get_model(short, weights=None, **more)
    inputs: list[tuple[Any, ...]]
    if kind == "video":
        sizes = ((8, 112), (16, 112), (16, 224))
        inputs = [(torch.randn(1, 3, frames, s, s),) for frames, s in sizes]
    elif kind == "optical_flow":
        inputs = [(torch.randn(1, 3, s, s), torch.randn(1, 3, s, s)) for s in (128, 256)]
    else:
        inputs = [(torch.randn(1, 3, s, s),) for s in SIDES]
    return fitting(seeded(net), inputs)


def fitting(
    net: torch.nn.Module, inputs: list[tuple[Any, ...]]
) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Return the network with the first input that it takes; the last one if it takes none."""
    for args in inputs[:-1]:
        try:
            with torch.no_grad():
                net(*args)
        except Exception:  # too small for it, of whatever kind the message is
            continue
        return net, args
    return net, inputs[-1]


def one(family: str, name: str, target: str, way: str) -> dict[str, Any]:
    """Return what became of a network, as a record."""
    began = time.perf_counter()
    try:
        net, args, inputs = built(family, name)
        shapes = [tuple(x.shape) for x in tensors_of((args, inputs))]
        outcome = (judged_compiled(net, args, inputs) if way == "compile"
                   else judged(net, args, inputs, target=target))  # fmt: skip
    except Exception as error:
        shapes, outcome = [], Outcome("failed", f"{type(error).__name__}: {str(error)[:1000]}")
    return {
        "name": name, "state": outcome.state, "error": outcome.error, "why": outcome.why,
        "inputs": shapes, "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def apart(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the record of a network that runs in a process of its own."""
    words = [sys.executable, "-B", __file__, "--family", options.family, "--one", name,
             "--target", options.target, "--way", options.way]  # fmt: skip
    limit = options.limit
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "state": "failed", "why": f"took more than {limit:.0f} s"}
    if done.returncode:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"name": name, "state": "failed", "why": f"exit {done.returncode}: {tail[:300]}"}
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", choices=("torchvision", "timm", "transformers"), required=True)
    parser.add_argument("--names", default="", help="regular expression of names")
    parser.add_argument("--share", default="0/1", help="k/n: every n-th network from k on")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--way", choices=("export", "compile"), default="export")
    parser.add_argument("--all", action="store_true", help="all networks, not one a module")
    parser.add_argument("--limit", type=float, default=400, help="seconds for a network")
    parser.add_argument("--json", type=Path, help="records go there, a line each; those in it stay")
    parser.add_argument("--one", help="run one network in this process and print its record")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.one:
        print(json.dumps(one(options.family, options.one, options.target, options.way)))
        return 0
    k, n = map(int, options.share.split("/"))
    there = options.json.read_text().splitlines() if options.json and options.json.exists() else []
    known = {json.loads(line)["name"] for line in there}
    chosen = [x for x in names(options.family, options.all) if re.search(options.names, x)]
    counts: Counter[str] = Counter()
    for name in [x for x in chosen[k::n] if x not in known]:
        record = apart(name, options)
        counts[record["state"]] += 1
        print(f"{record['state']:<12} {name:<40} {record.get('error', 0):8.1e} "
              f"{record.get('seconds', 0):6.1f} s  {record['why'][:1500]}", flush=True)  # fmt: skip
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
