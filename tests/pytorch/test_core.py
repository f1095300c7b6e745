"""Core ATen, which `run_decompositions()` leaves in a `.pt2` file, has converters."""

from __future__ import annotations

import torch

from alpenglow.frontends.torch import converters

WITHOUT = {
    "aten.atan2.out": "writes into an argument",
    "aten._native_batch_norm_legit.default": "writes into arguments; its functional form is there",
    "aten.resize_.default": "changes an argument, which nothing functional is left of",
    "aten.sym_is_contiguous.default": "is for tracing alone",
}
"""Overloads that no converter is for, and why; so are those of gradients and of extents."""


def test_all_of_core_aten_has_converters_but_what_is_listed() -> None:
    missing = []
    # `dir(torch.ops.aten)` has only what somebody asked for before.
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, name = qualified.partition("::")
        packet, _, overload = name.partition(".")
        if namespace != "aten" or not torch._C._dispatch_has_kernel(qualified):
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if torch.Tag.core in op.tags and converters.find(str(op)) is None:
            missing.append(str(op))
    expected = {
        op for op in missing
        if op in WITHOUT or "_backward." in op or op.startswith("aten.sym_")
    }  # fmt: skip

    assert set(missing) == expected
    assert WITHOUT.keys() <= set(missing)
