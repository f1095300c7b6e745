"""What an Arm object says about how it passes floats: nothing, because it passes none.

LLVM notes in `.ARM.attributes` that floats go in registers of the floating-point unit where the
target has one, and linkers then refuse programs that pass them in others.  The entry points of a
bundle take addresses only, so its objects fit both, and this says so.
"""

from __future__ import annotations

from alpenglow.base import leb128
from alpenglow.bundles.elf.writer import ElfObject

FLOAT_ARGUMENTS = 28
"""Tag_ABI_VFP_args, of the addenda to the ABI for the Arm architecture."""

EITHER = 3

_FILE = 1
_TEXTS = frozenset({4, 5, 65, 67})
"""Tags whose values are texts; the others that LLVM writes have numbers."""


def fit_both(image: bytes) -> bytes:
    """Return the object with floats said to be passed in neither way."""
    for section in ElfObject(image).sections:
        if section.name == ".ARM.attributes":
            at = section.offset
            changed = _changed(image[at : at + section.nbytes])
            return image[:at] + changed + image[at + section.nbytes :]
    return image


def _changed(content: bytes) -> bytes:
    """Return the attributes with the value of one of them replaced: one byte, like the old one."""
    assert content[:1] == b"A", "these are no attributes"
    at = content.index(b"aeabi\0") + 6
    assert content[at] == _FILE, "attributes of a file come first"
    at += 5
    while at < len(content):
        tag, at = leb128.read(content, at)
        if tag in _TEXTS:
            at = content.index(b"\0", at) + 1
            continue
        if tag == FLOAT_ARGUMENTS:
            return content[:at] + bytes([EITHER]) + content[at + 1 :]
        _, at = leb128.read(content, at)
    return content
