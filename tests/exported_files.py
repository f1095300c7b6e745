"""Files for tests, and files that are like them but for an edit."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "frontends" / "torch" / "files"

MODEL = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"

Entries = dict[str, bytes]


def names() -> list[str]:
    return sorted(p.stem for p in FILES.glob("*.pt2"))


def entries(data: bytes) -> Entries:
    """Return what is in a file, by names without the common folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {i.filename.partition("/")[2]: archive.read(i) for i in archive.infolist()}


def packed(parts: Entries, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a file of entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(f"m/{name}", content)
    return buffer.getvalue()


def edited(name: str, edit: Callable[[Any], Any], entry: str = MODEL) -> bytes:
    """Return a file in which the JSON of an entry is edited in place, or replaced."""
    parts = entries((FILES / f"{name}.pt2").read_bytes())
    whole = json.loads(parts[entry])
    changed = edit(whole)
    parts[entry] = json.dumps(whole if changed is None else changed).encode()
    return packed(parts)
