"""Write the small `.pt2` files that tests read without PyTorch, each with what eager makes.

    python tools/make_pt2.py                     into tests/frontends/torch/files

NAME.npz beside NAME.pt2 has the inputs by name, and outputs by name with "=" before it.
"""

from __future__ import annotations

import argparse
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers operators
from torch import nn
from torch.nn import functional as F

from alpenglow.frontends.torch import fx

FOLDER = Path(__file__).parents[1] / "tests" / "frontends" / "torch" / "files"
BATCH = torch.export.Dim("batch", min=1, max=64)


class Images(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """Convolutions, one of them depthwise, with the blocks around them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.stem(image))), 2)
        x = torch.relu(self.depthwise(x))
        return torch.softmax(self.head(x.mean((2, 3))), -1)


class Words(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A layer of attention on words, whose embedding is its output's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)

    def forward(self, words: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, Any]:
        x = self.embedding(words)
        n, length, _ = x.shape
        parts = self.qkv(self.norm(x)).reshape(n, length, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, length, 16)
        return {"scores": F.linear(x, self.embedding.weight), "last": (x[:, -1], n)}


class Count(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A buffer that each call changes, and constants that are views of what is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))
        self.register_buffer("turned", torch.arange(20.0).reshape(4, 5).t())
        self.register_buffer("part", torch.arange(20.0)[7:15:2])
        self.factors = torch.tensor([1, 2, 3, 4], dtype=torch.bfloat16)
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.sum.add_(x.sum(0))
        y = torch.where(self.mask, x * self.part, float("-inf"))
        return self.sum * self.factors.float(), y @ self.turned.t()


class Bytes(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A convolution of bytes, as PT2E writes one out, and a layer whose weights are in 4 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(-72, 72).reshape(4, 4, 3, 3).to(torch.int8))
        self.register_buffer("scales", torch.tensor([0.01, 0.02, 0.03, 0.04]))
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("few", (torch.arange(32).reshape(2, 16) % 16 - 8).to(torch.int8))
        self.register_buffer("groups", torch.tensor([[0.1, 0.2], [0.3, 0.4]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        q = ops.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        y = ops.dequantize_per_tensor(q, 0.05, 3, -128, 127, torch.int8)
        w = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127,
                                       torch.int8)  # fmt: skip
        z = F.conv2d(y, w).flatten(1)
        m = ops.dequantize_per_channel_group(self.few, self.groups, None, -8, 7, torch.int8, 8,
                                             torch.float32)  # fmt: skip
        return F.linear(z, m)


class Choice(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A choice by data, whose branches are graphs among the arguments of a call."""

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda a: a * n, lambda a: a - n, (x,))
        return torch.cat([y, x.new_full((x.shape[0], 1), float("-inf"))], 1)


class Writes(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """Activations in place, and writes through views, into what was read before and is after."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(inplace=True))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(x)
        turned, flat = y.permute(1, 0), y.view(-1)
        turned[1:3].mul_(2)
        y[:, 0] = x.narrow(1, 2, 1).squeeze(1)
        return y + flat.unflatten(0, (-1, 6)), turned


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def cases() -> dict[str, tuple[nn.Module, tuple[Any, ...], Any]]:
    """Return modules by name, with arguments, and the axes that are open."""
    torch.manual_seed(0)
    words = torch.arange(10).reshape(2, 5) * 7 % 20
    return {
        "images": (Images().eval(), (seeded(2, 3, 8, 8),), ({0: BATCH},)),
        "words": (Words().eval(), (words,), ({0: BATCH},)),
        "count": (Count().eval(), (seeded(3, 4),), None),
        "bytes": (Bytes().eval(), (seeded(2, 4, 4, 4),), ({0: BATCH},)),
        "choice": (Choice().eval(), (seeded(3, 4), 3), None),
        "writes": (Writes().eval(), (seeded(4, 6),), None),
    }


AS_EXPORTED = ("writes",)
"""Those that are saved without being decomposed."""


def write(folder: Path, name: str, module: nn.Module, args: tuple[Any, ...], shapes: Any) -> None:
    """Write a module's file, and what it makes of its arguments when it is first called."""
    program = torch.export.export(module, args, dynamic_shapes=shapes)
    lowered = program
    if name not in AS_EXPORTED:
        lowered = program.run_decompositions(fx.decompositions())
    without_folders(lowered.graph_module)
    torch.export.save(lowered, folder / f"{name}.pt2")
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(module(*args))
    known = fx.exported(program)
    inputs = [i.name for i in known.inputs if i.kind == "user"]
    outputs = [o.name for o in known.outputs if o.kind == "user"]
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    arrays = {n: x.numpy() for n, x in zip(inputs, tensors, strict=True)}
    arrays |= {f"={n}": np.asarray(y) for n, y in zip(outputs, leaves, strict=True)}
    np.savez(folder / f"{name}.npz", **arrays)


def without_folders(module: torch.fx.GraphModule) -> None:
    """Let traces name files alone, so that a fixture does not say where it was made."""
    nodes = [n for m in module.modules() if isinstance(m, torch.fx.GraphModule)
             for n in m.graph.nodes]  # fmt: skip
    for node in nodes:
        if trace := node.meta.get("stack_trace"):
            node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', trace)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    folder = parser.parse_args().into
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, (module, args, shapes) in cases().items():
        write(folder, name, module, args, shapes)


if __name__ == "__main__":
    main()
