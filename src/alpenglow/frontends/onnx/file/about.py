"""The metadata of an ONNX file besides its graph (`ir.metadata`)."""

from __future__ import annotations

from itertools import islice

import onnx

from alpenglow.ir.metadata import MOST_ENTRIES, Metadata, text, texts


def metadata(proto: onnx.ModelProto) -> Metadata:
    """Return the producer of a model, the opsets that it imports, and its own description."""
    return Metadata(
        producer=text(proto.producer_name),
        producer_version=text(proto.producer_version),
        domain=text(proto.domain),
        version=proto.model_version,
        description=text(proto.doc_string),
        opsets={text(o.domain): o.version for o in islice(proto.opset_import, MOST_ENTRIES)},
        properties=texts((p.key, p.value) for p in proto.metadata_props),
    )
