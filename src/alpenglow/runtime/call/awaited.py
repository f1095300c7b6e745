"""Calls that a task waits for: the code runs on a thread, and the event loop goes on meanwhile.

Imported when it is first needed: who calls from no event loop does not pay for asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from alpenglow.runtime.call import calls
from alpenglow.runtime.call.calls import Call

T = TypeVar("T")


async def run(call: Call, code: Callable[[], T]) -> T:
    """Return what `code`, which is the `call`, returns on another thread.

    Cancelling the task cancels the call.  The task goes on only when the code has ended: it works
    on arrays of the caller's.
    """

    def work() -> T:
        call.check()  # it may have waited for a thread
        return code()

    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        call.stop(calls.CANCELLED)
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # what ended the call is told by the cancelled task
        raise
