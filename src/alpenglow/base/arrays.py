"""Files of arrays in NumPy's formats, damaged or not."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from alpenglow.base.errors import AlpenglowError
from alpenglow.base.words import unread


@contextmanager
def readable() -> Iterator[None]:
    """Raise ValueError, which says why, where NumPy finds no arrays in what a block reads.

    NumPy tokenises and evaluates a header, zipfile unpacks by several libraries, and each raises
    errors of its own for bytes that make no sense.  An OSError of the system stays one.
    """
    try:
        yield
    except AlpenglowError:
        raise
    except Exception as error:
        # A place that lies before the file's start is an invalid argument to the system.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise ValueError(unread(error)) from error
