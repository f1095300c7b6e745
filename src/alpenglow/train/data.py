"""Data for training: batches by the names of a graph's inputs, in an order that a seed tells."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import FeedError, OptionError
from alpenglow.base.words import shown
from alpenglow.ops.host.image import Pictures, pictures

Batch = Mapping[str, NDArray[Any]]

Data = Mapping[str, Any] | Callable[[int], Iterable[Batch]] | Iterable[Batch]
"""Arrays whose first axis goes through samples; or batches: a list of them, or a function that
returns those of an epoch, which is told its number."""

AHEAD = 2
"""How many batches are made ready while a step runs."""


class Samples:
    """Arrays of equally many samples, handed out in batches."""

    def __init__(
        self, arrays: Mapping[str, Any], batch: int, seed: int | None, whole: bool
    ) -> None:
        """Shuffle by `seed`, in each epoch anew, or not at all; if not `whole`, the last batch may
        be smaller."""
        for what, number, least in (("batch", batch, 1), ("seed", seed, 0)):
            if number is not None and (not isinstance(number, int) or number < least):
                raise OptionError(f"{what} is {number!r}, expected {least} or more")
        self.arrays = {name: np.asarray(x) for name, x in arrays.items()}
        extents = {name: x.shape[0] if x.ndim else 0 for name, x in self.arrays.items()}
        if len(set(extents.values())) != 1:
            listed = ", ".join(f"{n} samples of {shown(name)}" for name, n in extents.items())
            raise FeedError(f"there are {listed or 'no arrays'}, expected as many of each")
        self.count = next(iter(extents.values()))
        self.batch, self.seed, self.whole = batch, seed, whole
        if len(self) == 0:
            raise FeedError(f"there are {self.count} samples, expected at least a batch of {batch}")

    def __len__(self) -> int:
        return self.count // self.batch if self.whole else -(-self.count // self.batch)

    def epoch(self, number: int, begin: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from number `begin` on."""
        order = np.arange(self.count)
        if self.seed is not None:
            np.random.default_rng([self.seed, number]).shuffle(order)
        for k in range(begin, len(self)):
            rows = order[k * self.batch : (k + 1) * self.batch]
            yield {name: x[rows] for name, x in self.arrays.items()}


class Stream:
    """Batches that somebody else makes."""

    def __init__(self, source: Callable[[int], Iterable[Batch]] | Iterable[Batch]) -> None:
        if not callable(source) and iter(source) is source:
            raise FeedError(
                "an iterator can be gone through once",
                hint="a list of batches, or a function of the epoch that returns an iterator",
            )
        self.source = source

    def __len__(self) -> int:
        """Return how many batches an epoch has, 0 if that is not known."""
        return len(self.source) if isinstance(self.source, Sized) else 0

    def epoch(self, number: int, begin: int = 0) -> Iterator[Batch]:
        source = self.source
        batches = source(number) if callable(source) else source
        for k, batch in enumerate(batches):
            if not isinstance(batch, Mapping):
                raise FeedError(f"batch {k} is {type(batch).__name__}, expected arrays by name")
            if k >= begin:
                yield batch


def batches(data: Data, batch: int, seed: int | None, whole: bool) -> Samples | Stream:
    """Return data as batches."""
    if isinstance(data, Mapping):
        return Samples(data, batch, seed, whole)
    return Stream(data)


def folder(
    path: str | Path,
    size: tuple[int, int],
    names: tuple[str, str],
    grey: bool = False,
    reading: Pictures | None = None,
) -> dict[str, Any]:
    """Return the pictures below a folder, and the number of the subfolder of each as its class.

    The arrays, by the two `names`: pictures f32[N, 3, height, width], one channel if `grey`,
    scaled as `reading` says (None: from 0 to 1), and labels i64[N], numbers of the classes in the
    order of their names.  Raises FeedError if there is no picture, or a file that is none,
    UnsupportedError without the extra `images`.
    """
    reading = reading or Pictures()
    files = [(file, number) for file, number in pictures(Path(path)) if number is not None]
    if not files:
        raise FeedError(f"{path}: expected a folder with images for each class, found none")
    images = [reading.read(file, *size, 1 if grey else 3) for file, _ in files]
    labels = [number for _, number in files]
    return {names[0]: np.stack(images), names[1]: np.asarray(labels, np.int64)}


def ahead(source: Iterator[Batch]) -> Iterator[Batch]:
    """Yield what an iterator does, which goes on in a thread of its own meanwhile."""
    made: queue.Queue[tuple[Batch | None, BaseException | None]] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def put(item: tuple[Batch | None, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                return made.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for batch in source:
                put((batch, None))
                if stopped.is_set():
                    return
        except BaseException as error:
            put((None, error))
        else:
            put((None, None))

    thread = threading.Thread(target=work, name="alpenglow data", daemon=True)
    thread.start()
    try:
        while True:
            batch, error = made.get()
            if error is not None:
                raise error
            if batch is None:
                return
            yield batch
    finally:
        stopped.set()
        thread.join()
