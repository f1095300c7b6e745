"""Ctrl-C in the middle of work that goes by steps: the step that runs comes to its end first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interruptible(err: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after Ctrl-C; the second Ctrl-C is a KeyboardInterrupt.

    The first one prints a line by `err`.  Outside of the main thread, which alone catches signals,
    the function returns False.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        err("training stops after this step; Ctrl-C once more ends it at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
