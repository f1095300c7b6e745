"""Custom calls that need nothing of their own: what they say has been done, or is known."""

from __future__ import annotations

SAME = frozenset(
    {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
     "annotate_device_placement", "xla.sdy.FuncResultSharding"}
)  # fmt: skip
"""Custom calls whose results are their operands."""

ASSERTION = "shape_assertion"
"""A custom call that says that something must hold of the extents of inputs."""

ACCEPTED = SAME | {ASSERTION}
