"""Hosted forms of operators on the characters of strings, and of what makes strings."""

from __future__ import annotations

import onnx

from alpenglow.base.errors import ModelError
from alpenglow.extras.strings import strings
from alpenglow.extras.strings.regex import translate
from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.hosted import HostSite, hosted
from alpenglow.ir.op import Host
from alpenglow.ir.types import DTYPES


@hosted("Constant")
def constant(s: HostSite) -> Host:
    if len(s.attributes) != 1:
        raise ModelError(f"Constant: {len(s.attributes)} attributes are set, expected one")
    ((form, value),) = s.attributes.items()
    if form == "value_string":
        return strings.StringConstant((value,), ())
    if form == "value_strings":
        return strings.StringConstant(value, (len(value),))
    return strings.StringConstant(tuple(value.flat), value.shape)


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
    translate(pattern)  # raises ModelError for an invalid pattern
    return strings.RegexFullMatch(pattern)


@hosted("Cast", since=9)
def cast(s: HostSite) -> Host:
    to = s.needed("to")
    if to == onnx.TensorProto.STRING:
        return strings.FormatNumbers()
    return strings.ParseNumbers(real(s, element_type(to, "Cast: to")))


def real(s: HostSite, dtype: str) -> str:
    """Return an element type; raise ModelError if it holds complex numbers."""
    if DTYPES[dtype].kind == "c":
        raise ModelError(f"{s.op_type}: strings to {dtype} are not supported, "
                         "expected a real dtype")  # fmt: skip
    return dtype


@hosted("CastLike", since=15)
def cast_like(s: HostSite) -> Host:
    return strings.CastLike()
