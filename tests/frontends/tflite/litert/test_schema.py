"""Our layouts and enumerations beside LiteRT's generated schema."""

from __future__ import annotations

import enum
import inspect
import re

import ai_edge_litert.schema_py_generated as generated
import pytest

from alpenglow.frontends.tflite.file import schema
from alpenglow.frontends.tflite.file.schema import LAYOUTS


def camel(name: str) -> str:
    return "".join(w.capitalize() for w in name.split("_"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_fields_have_the_numbers_and_defaults_of_the_schema(name: str) -> None:
    source = inspect.getsource(getattr(generated, name))
    fresh = getattr(generated, f"{name}T")()
    for field, f in LAYOUTS[name].items():
        word = camel(field)
        body = re.search(rf"def {word}\(self.*?_tab\.Offset\((\d+)\)", source, re.DOTALL)
        assert body is not None, f"{name} has no {field}"

        assert f.number == (int(body[1]) - 4) // 2, f"{name}.{field}"
        if f.kind in schema.SCALARS:
            assert f.default == getattr(fresh, word[0].lower() + word[1:]), f"{name}.{field}"


def test_builtins_have_the_numbers_of_the_schema() -> None:
    expected = {k: v for k, v in vars(generated.BuiltinOperator).items() if isinstance(v, int)}

    assert expected == {name: number for number, name in enumerate(schema.BUILTINS)}


def test_options_are_the_members_of_the_unions() -> None:
    for numbers, union in (
        (schema.OPTION_NUMBERS, generated.BuiltinOptions),
        (schema.OPTION_2_NUMBERS, generated.BuiltinOptions2),
    ):
        assert numbers == {name: getattr(union, name) for name in numbers}
    assert {*schema.OPTION_NUMBERS, *schema.OPTION_2_NUMBERS} == set(schema.OPTIONS)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(schema.Padding, "Padding"), (schema.Activation, "ActivationFunctionType"),
     (schema.MirrorMode, "MirrorPadMode"), (schema.Combiner, "CombinerType"),
     (schema.WindowFunction, "ReduceWindowFunction"), (schema.DimensionFormat, "DimensionType")],
)  # fmt: skip
def test_enumerations_are_those_of_the_schema(ours: type[enum.IntEnum], theirs: str) -> None:
    expected = {k: v for k, v in vars(getattr(generated, theirs)).items() if isinstance(v, int)}

    assert expected == {c.name: int(c) for c in ours}


def test_element_types_are_those_of_the_schema() -> None:
    names = {v: k for k, v in vars(generated.TensorType).items() if isinstance(v, int)}
    words = {"FLOAT": "f", "INT": "i", "UINT": "u", "COMPLEX": "c", "BFLOAT": "bf"}
    for number, name in names.items():
        read = re.fullmatch(r"([A-Z]+)(\d*)(?:_E\dM\d(?:FN)?)?", name)
        assert read is not None, name
        letters, bits = read.groups()
        expected = words.get(letters, letters.lower()) + bits
        expected += re.sub(r"^[A-Z0-9]*?_", "", name).lower() if "_" in name else ""

        assert schema.TYPES[number] == expected
