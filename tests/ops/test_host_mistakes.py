"""What operators of the host, and their hosted forms, refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from alpenglow.base.errors import FeedError, ModelError, UnsupportedError
from alpenglow.extras.ml import labels
from alpenglow.extras.sequences import sequences
from alpenglow.extras.strings import strings
from alpenglow.ir.op import Host
from alpenglow.ops.host.demand import text
from alpenglow.ops.host.sequence import SequenceAt, SequenceInsert
from onnx_host import LETTERS, ML, of

ONE = [np.zeros(2, np.float32)]


@pytest.mark.parametrize(
    ("op", "operands", "why"),
    [
        (SequenceAt(), (ONE, np.array(1)), "position is 1, expected at least -1 and below 1"),
        (SequenceAt(), (ONE, np.array(-2)), "position is -2, expected"),
        (SequenceAt(), ([], np.array(0)), "a sequence of 0"),
        (
            SequenceAt(),
            (np.zeros(2), np.array(0)),
            r"is float64\[2\], expected a sequence",
        ),
        (SequenceAt(), (ONE, np.array([0, 0])), "expected one integer"),
        (SequenceAt(), (ONE, np.array(0.5)), "expected a tensor of integers"),
        (SequenceInsert(), (ONE, ONE[0], np.array(2)), "position is 2, expected"),
        (SequenceInsert(), (ONE, np.zeros(2)), "expected one dtype"),
        (SequenceInsert(), (ONE, None), "tensor is absent"),
        (SequenceInsert(), (None, ONE[0]), "sequence is absent"),
        (sequences.SequenceErase(), ([],), "position is -1, expected"),
        (sequences.SequenceConstruct(), (np.zeros(1), np.zeros(1, int)), "expected one dtype"),
        (sequences.SplitToSequence(0), (np.zeros(3), np.array([1, 1])), "sizes with sum 3"),
        (sequences.SplitToSequence(0), (np.zeros(3), np.array(0)), "split is 0"),
        (sequences.SplitToSequence(0), (np.zeros(3), np.array([4, -1])), "sizes of at least 0"),
        (sequences.SplitToSequence(1), (np.zeros(3),), "axis is 1, expected at least -1"),
        (sequences.ConcatFromSequence(0), ([],), "has 0 tensors"),
        (sequences.ConcatFromSequence(0), ([np.zeros((1, 2)), np.zeros((1, 3))],), "axis 0 only"),
        (sequences.ConcatFromSequence(0), ([np.array(1.0)],), "rank 0"),
        (sequences.OptionalGetElement(), (None,), "an optional with an element"),
        (strings.StringConcat(), (text("ab"), text("abc")), "expected shapes that broadcast"),
        (strings.StringConcat(), (text("ab"), np.zeros(2)), "expected a tensor of strings"),
        (strings.StringConcat(), (text("ab"), np.array([b"a"], object)), "holds a bytes"),
        (strings.StringNormalizer(), (LETTERS,), r"expected string\[N\]"),
        (strings.ParseNumbers("f32"), (text(["1_0"]),), "x holds '1_0', expected a number"),
        (strings.ParseNumbers("i64"), (text(["x"]),), "'x'"),
        (strings.ParseNumbers("i64"), (text(["nan"]),), "'nan', expected i64"),
        (strings.ParseNumbers("i64"), (text([str(2**63)]),), "i64|int64"),
        (strings.ParseNumbers("u8"), (text(["-1"]),), "-1, expected a number of u8"),
        (strings.ParseNumbers("u64"), (text(["-1"]),), "expected u64"),
        (strings.ParseNumbers("i64"), (text(["9" * 9999]),), "expected i64"),
        (strings.FormatNumbers(), (np.zeros(1, complex),), "real numbers"),
        (labels.ZipMap(("a",)), (np.zeros((2, 2)),), "a column for each key"),
        (labels.OneHotLabels(("a",), False), (text("b"),), "'b', expected one of a"),
        (labels.CastMap("f32", 2), ({2: 1.0},), "key 2, expected 0 to 1"),
        (labels.CastMap(), (np.zeros(2),), "expected a map"),
        (labels.MapLabels((1,), ("a",), "b"), (text("a"),), "a tensor of numbers"),
        (labels.MapLabels(("a",), (1,), 0, "i64"), (np.zeros(2),), "expected a tensor of strings"),
        (labels.MapLabels(("a",), (1,), 0, "i64"), (np.array(["a", 1], object),), "holds a int"),
        (labels.MapLabels(("a",), (1,), 0, "i64"), (np.array([None, "a"]),), "holds a NoneType"),
        (labels.MapLabels(("a",), (1,), 0, "i64"), (np.array(["a", {}]),), "holds a dict"),
    ],
)
def test_a_wrong_value_is_refused(op: Host, operands: tuple[Any, ...], why: str) -> None:
    with pytest.raises(FeedError, match=why):
        op.reference(*operands)


TFIDF: dict[str, Any] = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0,
    "pool_strings": ["a"], "ngram_counts": [0], "ngram_indexes": [0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: of("ImageDecoder", pixel_format="CMYK"), "expected one of RGB, BGR, Grayscale"),
        (lambda: of("StringNormalizer", case_change_action="TITLE"), "TITLE"),
        (lambda: of("ConcatFromSequence"), "attribute 'axis' is missing"),
        (lambda: of("Cast", to=TensorProto.COMPLEX64), "strings to c64"),
        (lambda: of("TfIdfVectorizer", **(TFIDF | {"ngram_indexes": [0, 1]})), "expected starts"),
        (lambda: of("TfIdfVectorizer", **(TFIDF | {"ngram_counts": [1]})), "expected starts"),
        (lambda: of("TfIdfVectorizer", **(TFIDF | {"weights": [1.0, 2.0]})), "weights has 2"),
        (lambda: of("TfIdfVectorizer", **(TFIDF | {"min_gram_length": 2})), "min_gram_length is 2"),
        (lambda: of("LabelEncoder", 2, ML, keys_strings=["a"]), "expected one attribute values_"),
        (lambda: of("LabelEncoder", 2, ML, keys_strings=["a"], values_int64s=[1, 2]), "has 2 ent"),
        (lambda: of("CategoryMapper", 1, ML, cats_strings=["a"], cats_int64s=[1, 2]), "has 2 ent"),
        (lambda: of("ZipMap", 1, ML), "expected one of the attributes classlabels_strings"),
        (lambda: of("CastMap", 1, ML, cast_to="TO_BOOL"), "TO_BOOL"),
    ],
)
def test_a_wrong_attribute_is_refused(make: Callable[[], Host], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        make()


def test_without_pillow_an_image_asks_for_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("alpenglow.ops.host.image.importlib.import_module", missing)
    with pytest.raises(UnsupportedError, match="alpenglow\\[images\\]"):
        of("ImageDecoder").reference(np.zeros(3, np.uint8))
