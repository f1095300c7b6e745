"""Hosted forms of operators on sequences and optionals, and of what makes images."""

from __future__ import annotations

from alpenglow.extras.sequences import sequences
from alpenglow.frontends.onnx.hosted import HostSite, hosted
from alpenglow.ir.op import Host
from alpenglow.ops.host.image import MODES, DecodeImage
from alpenglow.ops.host.sequence import SequenceAt, SequenceInsert


@hosted("SequenceEmpty", since=11)
def sequence_empty(s: HostSite) -> Host:
    return sequences.SequenceEmpty()  # `dtype` only types what is not there


@hosted("SequenceConstruct", since=11)
def sequence_construct(s: HostSite) -> Host:
    return sequences.SequenceConstruct()


@hosted("SequenceAt", since=11)
def sequence_at(s: HostSite) -> Host:
    return SequenceAt()


@hosted("SequenceInsert", since=11)
def sequence_insert(s: HostSite) -> Host:
    return SequenceInsert()


@hosted("SequenceErase", since=11)
def sequence_erase(s: HostSite) -> Host:
    return sequences.SequenceErase()


@hosted("SequenceLength", since=11)
def sequence_length(s: HostSite) -> Host:
    return sequences.SequenceLength()


@hosted("SplitToSequence", since=11)
def split_to_sequence(s: HostSite) -> Host:
    return sequences.SplitToSequence(s.attribute("axis", 0), bool(s.attribute("keepdims", 1)))


@hosted("ConcatFromSequence", since=11)
def concat_from_sequence(s: HostSite) -> Host:
    return sequences.ConcatFromSequence(s.needed("axis"), bool(s.attribute("new_axis", 0)))


@hosted("Optional", since=15)
def optional(s: HostSite) -> Host:
    return sequences.OptionalConstruct()  # `type` only types what is not there


@hosted("OptionalHasElement", since=15)
def optional_has_element(s: HostSite) -> Host:
    return sequences.OptionalHasElement()


@hosted("OptionalGetElement", since=15)
def optional_get_element(s: HostSite) -> Host:
    return sequences.OptionalGetElement()


@hosted("Identity")
def identity(s: HostSite) -> Host:
    return sequences.Keep()


@hosted("ImageDecoder", since=20)
def image_decoder(s: HostSite) -> Host:
    return DecodeImage(s.choice("pixel_format", "RGB", tuple(MODES)))
