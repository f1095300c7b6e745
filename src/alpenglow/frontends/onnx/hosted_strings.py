"""Hosted forms of operators on strings, and of operators on tensors where those hold strings."""

from __future__ import annotations

import numpy as np
import onnx

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.attributes import element_type
from alpenglow.frontends.onnx.hosted import HostSite, hosted
from alpenglow.ir.op import Host
from alpenglow.ir.types import DTYPES
from alpenglow.ops import string_choice, string_layout, string_parts, strings
from alpenglow.ops.regex import translate

PADDINGS = ("constant", "reflect", "edge", "wrap")


def constant_of_strings(s: HostSite) -> bool:
    value = s.attribute("value")
    textual = isinstance(value, np.ndarray) and value.dtype == object
    return textual or bool({"value_string", "value_strings"} & s.attributes.keys())


@hosted("Constant", makes=constant_of_strings)
def constant(s: HostSite) -> Host:
    if len(s.attributes) != 1:
        raise ModelError(f"Constant: {len(s.attributes)} attributes given, expected one")
    ((form, value),) = s.attributes.items()
    if form == "value_string":
        return strings.StringConstant((value,), ())
    if form == "value_strings":
        return strings.StringConstant(value, (len(value),))
    return strings.StringConstant(tuple(value.flat), value.shape)


# ── characters ──


@hosted("StringConcat", since=20)
def string_concat(s: HostSite) -> Host:
    return strings.StringConcat()


@hosted("StringSplit", since=20)
def string_split(s: HostSite) -> Host:
    return strings.StringSplit(s.attribute("delimiter", ""), s.attribute("maxsplit", -1))


@hosted("StringNormalizer", since=10)
def string_normalizer(s: HostSite) -> Host:
    return strings.StringNormalizer(
        s.choice("case_change_action", "NONE", ("NONE", "LOWER", "UPPER")).lower(),
        bool(s.attribute("is_case_sensitive", 0)),
        s.attribute("stopwords", ()),
    )


@hosted("RegexFullMatch", since=20)
def regex_full_match(s: HostSite) -> Host:
    pattern = s.needed("pattern")
    translate(pattern)  # raises ModelError if it is no regular expression
    return strings.RegexFullMatch(pattern)


def to_strings(s: HostSite) -> bool:
    to = s.attribute("to")
    # What is no number is refused where the node is converted.
    return isinstance(to, int) and to == onnx.TensorProto.STRING


@hosted("Cast", since=9, makes=to_strings)
def cast(s: HostSite) -> Host:
    to = s.needed("to")
    if to == onnx.TensorProto.STRING:
        return strings.FormatNumbers()
    return strings.ParseNumbers(real(s, element_type(to, "Cast: to")))


def real(s: HostSite, dtype: str) -> str:
    """Return an element type; raise ModelError if it holds complex numbers."""
    if DTYPES[dtype].kind == "c":
        raise ModelError(f"{s.op_type}: strings spell no {dtype}")
    return dtype


@hosted("CastLike", since=15)
def cast_like(s: HostSite) -> Host:
    return strings.CastLike()


# ── shapes ──


@hosted("Shape")
def shape(s: HostSite) -> Host:
    return string_layout.StringShape(s.attribute("start", 0), s.attribute("end"))


@hosted("Size")
def size(s: HostSite) -> Host:
    return string_layout.StringSize()


@hosted("Reshape")
def reshape_attribute(s: HostSite) -> Host:
    return string_layout.StringReshape(False, s.needed("shape"))


@hosted("Reshape", since=5)
def reshape(s: HostSite) -> Host:
    return string_layout.StringReshape(bool(s.attribute("allowzero", 0)))


@hosted("Flatten")
def flatten(s: HostSite) -> Host:
    return string_layout.StringFlatten(s.attribute("axis", 1))


@hosted("Squeeze")
def squeeze(s: HostSite) -> Host:
    return string_layout.StringSqueeze(s.attribute("axes"))


@hosted("Unsqueeze")
def unsqueeze_attribute(s: HostSite) -> Host:
    return string_layout.StringUnsqueeze(s.needed("axes"))


@hosted("Unsqueeze", since=13)
def unsqueeze(s: HostSite) -> Host:
    return string_layout.StringUnsqueeze()


@hosted("Transpose")
def transpose(s: HostSite) -> Host:
    return string_layout.StringTranspose(s.attribute("perm"))


@hosted("Expand", since=8)
def expand(s: HostSite) -> Host:
    return string_layout.StringExpand()


@hosted("DepthToSpace")
def depth_to_space(s: HostSite) -> Host:
    mode = s.choice("mode", "DCR", ("DCR", "CRD"))
    return string_layout.StringDepthToSpace(block(s), mode)


@hosted("SpaceToDepth")
def space_to_depth(s: HostSite) -> Host:
    return string_layout.StringSpaceToDepth(block(s))


def block(s: HostSite) -> int:
    """Return the extent of blocks; raise ModelError if there is none."""
    extent = s.needed("blocksize")
    if extent < 1:
        raise ModelError(f"{s.op_type}: blocksize is {extent}, expected a positive number")
    return int(extent)


# ── parts ──


@hosted("Tile", since=6)
def tile(s: HostSite) -> Host:
    return string_parts.StringTile()


@hosted("Concat")
def concat(s: HostSite) -> Host:
    return string_parts.StringJoin(s.attribute("axis", 1) if s.opset < 4 else s.needed("axis"))


@hosted("Split")
def split(s: HostSite) -> Host:
    parts = s.attribute("num_outputs", s.outputs)
    return string_parts.StringDivide(s.attribute("axis", 0), parts, s.attribute("split", ()))


@hosted("Slice")
def slice_attributes(s: HostSite) -> Host:
    starts, ends, axes = s.needed("starts"), s.needed("ends"), s.attribute("axes")
    if len(starts) != len(ends) or (axes is not None and len(axes) != len(starts)):
        raise ModelError(f"Slice: starts {starts}, ends {ends} and axes {axes} differ in length")
    return string_parts.FixedStringSlice(starts, ends, axes)


@hosted("Slice", since=10)
def slice_operands(s: HostSite) -> Host:
    return string_parts.StringSlice()


@hosted("Pad", since=13)
def pad(s: HostSite) -> Host:
    return string_parts.StringPad(s.choice("mode", "constant", PADDINGS))


@hosted("CenterCropPad", since=18)
def center_crop_pad(s: HostSite) -> Host:
    return string_parts.StringCenterCropPad(s.attribute("axes"))


@hosted("ReverseSequence", since=10)
def reverse_sequence(s: HostSite) -> Host:
    axes = s.attribute("batch_axis", 1), s.attribute("time_axis", 0)
    if sorted(axes) != [0, 1]:
        raise ModelError(f"ReverseSequence: batch and time axes are {axes}, expected 0 and 1")
    return string_parts.StringReverseSequence(*axes)


# ── choices ──


@hosted("Gather")
def gather(s: HostSite) -> Host:
    return string_choice.StringGather(s.attribute("axis", 0))


@hosted("GatherElements", since=11)
def gather_elements(s: HostSite) -> Host:
    return string_choice.StringGatherElements(s.attribute("axis", 0))


@hosted("GatherND", since=11)
def gather_nd(s: HostSite) -> Host:
    return string_choice.StringGatherND(s.attribute("batch_dims", 0))


@hosted("Scatter", since=9)
@hosted("ScatterElements", since=11)
def scatter_elements(s: HostSite) -> Host:
    s.choice("reduction", "none", ("none",))
    return string_choice.StringScatterElements(s.attribute("axis", 0))


@hosted("ScatterND", since=11)
def scatter_nd(s: HostSite) -> Host:
    s.choice("reduction", "none", ("none",))
    return string_choice.StringScatterND()


@hosted("Compress", since=9)
def compress(s: HostSite) -> Host:
    return string_choice.StringCompress(s.attribute("axis"))


@hosted("Where", since=9)
def where(s: HostSite) -> Host:
    return string_choice.StringWhere()


@hosted("Equal", since=19)
def equal(s: HostSite) -> Host:
    return string_choice.StringEqual()


@hosted("NonZero", since=9)
def non_zero(s: HostSite) -> Host:
    return string_choice.StringNonZero()


@hosted("OneHot", since=9)
def one_hot(s: HostSite) -> Host:
    return string_choice.StringOneHot(s.attribute("axis", -1))


@hosted("Unique", since=11)
def unique(s: HostSite) -> Host:
    return string_choice.StringUnique(s.attribute("axis"), bool(s.attribute("sorted", 1)))


@hosted("Trilu", since=14)
def trilu(s: HostSite) -> Host:
    return string_choice.StringTrilu(bool(s.attribute("upper", 1)))
