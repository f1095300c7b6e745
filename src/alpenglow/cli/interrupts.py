"""Ctrl-C in the middle of work that goes by steps: the step that runs comes to its end first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import click


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield what says that Ctrl-C was pressed; pressed once more, it is a KeyboardInterrupt.

    Outside of the main thread, where no signal can be caught, it never says so.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        click.echo("stops after this step; Ctrl-C once more ends at once", err=True)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
