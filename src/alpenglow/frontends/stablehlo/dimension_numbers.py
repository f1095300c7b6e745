"""Names of the fields of dimension numbers, in files and in `module`."""

from __future__ import annotations

from typing import Any

from alpenglow.frontends.stablehlo.module import ConvDims

GATHER = {
    "offset_dims": "offset", "collapsed_slice_dims": "collapsed",
    "operand_batching_dims": "operand_batch", "start_indices_batching_dims": "index_batch",
    "start_index_map": "start_map", "index_vector_dim": "index_axis",
}  # fmt: skip
SCATTER = {
    "update_window_dims": "offset", "inserted_window_dims": "collapsed",
    "input_batching_dims": "operand_batch", "scatter_indices_batching_dims": "index_batch",
    "scatter_dims_to_operand_dims": "start_map", "index_vector_dim": "index_axis",
}  # fmt: skip
DOT = {
    "lhs_batching_dimensions": "lhs_batch", "rhs_batching_dimensions": "rhs_batch",
    "lhs_contracting_dimensions": "lhs_contract", "rhs_contracting_dimensions": "rhs_contract",
}  # fmt: skip
CONV = (
    ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
    ("kernel_output_feature_dimension", "kernel_input_feature_dimension",
     "kernel_spatial_dimensions"),
    ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
)  # fmt: skip


def take_convolution(fields: dict[str, Any]) -> ConvDims:
    """Take the axes of a convolution out of fields by name."""
    return ConvDims(*((fields.pop(a), fields.pop(b), *fields.pop(c)) for a, b, c in CONV))
