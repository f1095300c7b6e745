"""The part of TFLite's schema that is read, as data: layouts of tables, and enumerations.

A field is ``name:kind``, with its default behind ``=`` where that is not 0; fields are numbered in
order, and ``-`` is a number whose field is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from alpenglow.frontends.flatbuffer import SCALARS, Field, Layout

TABLES: Mapping[str, str] = {
    "Model": "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str "
             "buffers:[Buffer] - metadata:[Metadata] signature_defs:[SignatureDef]",
    "OperatorCode": "deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32",
    "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str",
    "Operator": "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options_type:u8 "
                "builtin_options:union custom_options:[u8] - mutating_variable_inputs:[bool] "
                "intermediates:[i32] large_custom_options_offset:u64 large_custom_options_size:u64 "
                "builtin_options_2_type:u8 builtin_options_2:union",
    "Tensor": "shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters "
              "is_variable:bool sparsity:SparsityParameters shape_signature:[i32] has_rank:bool - "
              "external_buffer:u32",
    "QuantizationParameters": "min:[f32] max:[f32] scale:[f32] zero_point:[i64] details_type:u8 "
                              "details:union quantized_dimension:i32",
    "SparsityParameters": "traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": "format:i8 dense_size:i32 array_segments_type:u8 array_segments:union "
                         "array_indices_type:u8 array_indices:union",
    "Int32Vector": "values:[i32]",
    "Uint16Vector": "values:[u16]",
    "Uint8Vector": "values:[u8]",
    "Buffer": "data:[u8] offset:u64 size:u64",
    "Metadata": "name:str buffer:u32",
    "TensorMap": "name:str tensor_index:u32",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:str - subgraph_index:u32",
}  # fmt: skip

OPTIONS: Mapping[str, str] = {
    "Conv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 "
                     "dilation_w_factor:i32=1 dilation_h_factor:i32=1",
    "Conv3DOptions": "padding:i8 stride_d:i32 stride_w:i32 stride_h:i32 "
                     "fused_activation_function:i8 dilation_d_factor:i32=1 "
                     "dilation_w_factor:i32=1 dilation_h_factor:i32=1",
    "Pool2DOptions": "padding:i8 stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32 "
                     "fused_activation_function:i8",
    "DepthwiseConv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 depth_multiplier:i32 "
                              "fused_activation_function:i8 dilation_w_factor:i32=1 "
                              "dilation_h_factor:i32=1",
    "SVDFOptions": "rank:i32 fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "RNNOptions": "fused_activation_function:i8 asymmetric_quantize_inputs:bool",
    "SequenceRNNOptions": "time_major:bool fused_activation_function:i8 "
                          "asymmetric_quantize_inputs:bool",
    "BidirectionalSequenceRNNOptions": "time_major:bool fused_activation_function:i8 "
                                       "merge_outputs:bool asymmetric_quantize_inputs:bool",
    "FullyConnectedOptions": "fused_activation_function:i8 weights_format:i8 keep_num_dims:bool "
                             "asymmetric_quantize_inputs:bool",
    "SoftmaxOptions": "beta:f32",
    "ConcatenationOptions": "axis:i32 fused_activation_function:i8",
    "AddOptions": "fused_activation_function:i8 pot_scale_int16:bool=1",
    "SubOptions": "fused_activation_function:i8 pot_scale_int16:bool=1",
    "MulOptions": "fused_activation_function:i8",
    "DivOptions": "fused_activation_function:i8",
    "L2NormOptions": "fused_activation_function:i8",
    "LocalResponseNormalizationOptions": "radius:i32 bias:f32 alpha:f32 beta:f32",
    "LSTMOptions": "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 kernel_type:i8 "
                   "asymmetric_quantize_inputs:bool",
    "UnidirectionalSequenceLSTMOptions": "fused_activation_function:i8 cell_clip:f32 "
                                         "proj_clip:f32 time_major:bool "
                                         "asymmetric_quantize_inputs:bool "
                                         "diagonal_recurrent_tensors:bool",
    "BidirectionalSequenceLSTMOptions": "fused_activation_function:i8 cell_clip:f32 proj_clip:f32 "
                                        "merge_outputs:bool time_major:bool=1 "
                                       "asymmetric_quantize_inputs:bool",
    "ResizeBilinearOptions": "- - align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "ReshapeOptions": "new_shape:[i32]",
    "SpaceToDepthOptions": "block_size:i32",
    "DepthToSpaceOptions": "block_size:i32",
    "EmbeddingLookupSparseOptions": "combiner:i8",
    "GatherOptions": "axis:i32 batch_dims:i32",
    "ReducerOptions": "keep_dims:bool",
    "SqueezeOptions": "squeeze_dims:[i32]",
    "SplitOptions": "num_splits:i32",
    "SplitVOptions": "num_splits:i32",
    "StridedSliceOptions": "begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 "
                           "shrink_axis_mask:i32 offset:bool",
    "TransposeConvOptions": "padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8",
    "FakeQuantOptions": "min:f32 max:f32 num_bits:i32 narrow_range:bool",
    "PackOptions": "values_count:i32 axis:i32",
    "UnpackOptions": "num:i32 axis:i32",
    "OneHotOptions": "axis:i32",
    "LeakyReluOptions": "alpha:f32",
    "MirrorPadOptions": "mode:i8",
    "ReverseSequenceOptions": "seq_dim:i32 batch_dim:i32",
    "IfOptions": "then_subgraph_index:i32 else_subgraph_index:i32",
    "WhileOptions": "cond_subgraph_index:i32 body_subgraph_index:i32",
    "CallOptions": "subgraph:u32",
    "CallOnceOptions": "init_subgraph_index:i32",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool",
    "CumsumOptions": "exclusive:bool reverse:bool",
    "VarHandleOptions": "container:str shared_name:str",
    "RandomOptions": "seed:i64 seed2:i64",
    "BucketizeOptions": "boundaries:[f32]",
    "GeluOptions": "approximate:bool",
    "ReduceWindowOptions": "reduce_function:i32",
    "StableHLOCompositeOptions": "name:str decomposition_subgraph_index:i32",
}  # fmt: skip

OPTION_NUMBERS: Mapping[str, int] = {
    "Conv2DOptions": 1, "DepthwiseConv2DOptions": 2, "Pool2DOptions": 5, "SVDFOptions": 6,
    "RNNOptions": 7, "FullyConnectedOptions": 8, "SoftmaxOptions": 9, "ConcatenationOptions": 10,
    "AddOptions": 11, "L2NormOptions": 12, "LocalResponseNormalizationOptions": 13,
    "LSTMOptions": 14, "ResizeBilinearOptions": 15, "CallOptions": 16, "ReshapeOptions": 17,
    "SpaceToDepthOptions": 19, "EmbeddingLookupSparseOptions": 20, "MulOptions": 21,
    "GatherOptions": 23, "ReducerOptions": 27, "SubOptions": 28, "DivOptions": 29,
    "SqueezeOptions": 30, "SequenceRNNOptions": 31, "StridedSliceOptions": 32, "SplitOptions": 35,
    "TransposeConvOptions": 49, "FakeQuantOptions": 58, "PackOptions": 59, "OneHotOptions": 61,
    "UnpackOptions": 64, "BidirectionalSequenceLSTMOptions": 69,
    "BidirectionalSequenceRNNOptions": 70, "UnidirectionalSequenceLSTMOptions": 71,
    "ResizeNearestNeighborOptions": 74, "LeakyReluOptions": 75, "MirrorPadOptions": 77,
    "SplitVOptions": 79, "ReverseSequenceOptions": 87, "IfOptions": 92, "WhileOptions": 93,
    "DepthToSpaceOptions": 94, "BatchMatMulOptions": 101, "CumsumOptions": 102,
    "CallOnceOptions": 103, "Conv3DOptions": 106, "VarHandleOptions": 111,
    "RandomOptions": 114, "BucketizeOptions": 115, "GeluOptions": 116,
}  # fmt: skip
"""Values of `builtin_options_type`, one for each layout of `builtin_options`."""

OPTION_2_NUMBERS: Mapping[str, int] = {"ReduceWindowOptions": 20, "StableHLOCompositeOptions": 21}
"""The same for `builtin_options_2`."""

TYPES: Mapping[int, str] = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 5: "string", 6: "bool", 7: "i16", 8: "c64",
    9: "i8", 10: "f64", 11: "c128", 12: "u64", 13: "resource", 14: "variant", 15: "u32", 16: "u16",
    17: "i4", 18: "bf16", 19: "i2", 20: "u4", 21: "f8e4m3fn", 22: "f8e5m2",
}  # fmt: skip
"""Dtypes by number; string, resource and variant are in no graph."""

INDEX_VECTORS: Mapping[int, str] = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
"""How the indices of a sparse tensor are stored."""


class Padding(IntEnum):
    """How far a window may hang over the edge."""

    SAME = 0
    VALID = 1


class Activation(IntEnum):
    """The function applied to the result of an operator."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


class MirrorMode(IntEnum):
    """Whether the element at the edge is repeated by a mirror."""

    REFLECT = 0
    SYMMETRIC = 1


class Combiner(IntEnum):
    """How embeddings are put together."""

    SUM = 0
    MEAN = 1
    SQRTN = 2


class WindowFunction(IntEnum):
    """How REDUCE_WINDOW reduces a window."""

    UNSUPPORTED = 0
    ADD = 1
    MUL = 2
    MINIMUM = 3
    MAXIMUM = 4
    ALL = 5
    ANY = 6


class DimensionFormat(IntEnum):
    """How an axis of a sparse tensor is stored."""

    DENSE = 0
    SPARSE_CSR = 1


CUSTOM = 32
"""The builtin that is an operator by name."""

_BUILTINS = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
    LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1
    RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM
    CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
    SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM
    CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
    SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
    ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
    REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
    LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
    WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
    BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
    REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
    CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
    BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
    UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
    RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
    STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL
    STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
    STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER
    STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
    STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
    DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT
    STABLEHLO_CBRT STABLEHLO_CASE
"""

BUILTINS = tuple(_BUILTINS.split())
"""The builtin operators, each at its number."""


def layout(text: str) -> Layout:
    """Return the fields that a declaration lists."""
    fields = {}
    for number, word in enumerate(text.split()):
        if word == "-":
            continue
        name, _, rest = word.partition(":")
        kind, _, default = rest.partition("=")
        fields[name] = Field(number, kind, _default(kind, default))
    return fields


def _default(kind: str, text: str) -> Any:
    if kind == "bool":
        return bool(text)
    if kind not in SCALARS:
        return None
    return float(text or 0) if kind.startswith("f") else int(text or 0)


LAYOUTS: Mapping[str, Layout] = {name: layout(text) for name, text in {**TABLES, **OPTIONS}.items()}
"""All layouts by name."""
