"""Locks that the child of a fork finds free, whichever thread of its parent held them.

Only the thread that forks goes on in the child: a lock that another one held would never be given
back.  What such a lock protects is therefore published in one step, when it is complete: a child
finds it as it was before, or behind.

A lock is entered by `with` alone.  Python looks for signals in functions of its own: an interrupt
between an `acquire` and the `try` behind it would leave the lock held for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


def new_lock() -> threading.Lock:
    """Return a new lock."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> Any:
    """Return a new lock that a thread may enter again while it has it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def _free() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
