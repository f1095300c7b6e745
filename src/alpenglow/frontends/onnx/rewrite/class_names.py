"""Classifiers whose classes are called by strings: a classifier of numbers, and a LabelEncoder.

No graph holds strings, so the classifier returns the number of the class, and the string is looked
up on the host.
"""

from __future__ import annotations

import onnx
from onnx import helper

from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.functions import mark

ML = "ai.onnx.ml"

NUMBERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""The attribute that numbers the classes, for each operator that may name them by strings."""

NAMES = "classlabels_strings"

LABEL_ENCODER = 2
"""The first opset of ai.onnx.ml whose LabelEncoder maps integers to strings."""


def numbered(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node, or the two that replace a classifier whose classes are strings."""
    attribute = next((a for a in node.attribute if a.name == NAMES and a.strings), None)
    if attribute is None or domain_of(node) != ML or node.op_type not in NUMBERS:
        return [node]
    numbers = range(len(attribute.strings))
    classifier = onnx.NodeProto()
    classifier.CopyFrom(node)
    del classifier.attribute[:]
    dropped = (NAMES, NUMBERS[node.op_type])
    classifier.attribute.extend(a for a in node.attribute if a.name not in dropped)
    classifier.attribute.append(helper.make_attribute(NUMBERS[node.op_type], numbers))
    if not node.output or not node.output[0]:
        return [classifier]
    label = node.output[0]
    classifier.output[0] = f"{label}#class"
    encoder = helper.make_node(
        "LabelEncoder", [classifier.output[0]], [label], domain=ML, name=node.name,
        keys_int64s=numbers, values_strings=attribute.strings,
    )  # fmt: skip
    mark(encoder, LABEL_ENCODER)
    return [classifier, encoder]
