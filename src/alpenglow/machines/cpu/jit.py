"""Install object code in this process and find the addresses of its functions.

One linker serves the process.  Each `Code` is a library of its own in it: objects of two Codes may
define the same names, and a Code's memory goes when its last reference goes.  Linking costs about
0.1 ms an object; a library leaves some 10 KB behind when it is dropped, so objects that live
together are installed together.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import llvmlite.binding as llvm


class Code:
    """Machine code in this process; whoever uses an address keeps the Code alive.

    Dropping one is left to reference counts: llvmlite's tracker unloads the library when it is
    collected, and does nothing while the interpreter shuts down.
    """

    def __init__(self, linker: Any, library: str, tracker: Any, symbols: Iterable[str]) -> None:
        self._linker = linker
        self._library = library
        # Closing any tracker unloads the whole library: all must live as long as the first.
        self._trackers = [tracker]
        self._addresses = {symbol: int(tracker[symbol]) for symbol in symbols}

    @staticmethod
    def install(objects: Sequence[bytes], symbols: Sequence[str] = ()) -> Code:
        """Link object files into one new library; names of libc and libm resolve.

        An object is linked when a symbol of it is first asked for; those of `symbols` at once.
        """
        builder = llvm.JITLibraryBuilder()
        for image in objects:
            builder.add_object_img(image)
        builder.add_current_process()
        for symbol in symbols:
            builder.export_symbol(symbol)
        linker = _linker()
        library = f"code{next(_numbers)}"
        try:
            tracker = builder.link(linker, library)
        except RuntimeError as error:
            raise AssertionError(f"the linker rejects the objects: {error}") from None
        return Code(linker, library, tracker, symbols)

    def address(self, symbol: str) -> int:
        """Return where the function or variable `symbol` lies."""
        known = self._addresses.get(symbol)
        if known is not None:
            return known
        try:
            tracker = self._linker.lookup(self._library, symbol)
        except RuntimeError as error:
            raise AssertionError(f"no symbol '{symbol}' in this code: {error}") from None
        self._trackers.append(tracker)
        return self._addresses.setdefault(symbol, int(tracker[symbol]))


_numbers = itertools.count()


@functools.cache
def _linker() -> Any:
    """Return the linker of the process, made on first use."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Windows has only the older of LLVM's two linkers.  Which name it missed, either says on stderr
    # alone.
    return llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32")
