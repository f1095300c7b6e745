"""Samples: what a model is run on to see its values, given by the caller or read from files.

A data set is a folder of .npy and .npz files, a sample each, or one .npz file whose arrays have a
first axis of samples.  Labels, where a metric needs them, are the array `labels`.  It may also be a
folder of pictures, for a model with one input of pictures: their pixels are from 0 to 1 in f32, and
from 0 to 255 in u8; the folders that they lie in, if any, are the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alpenglow.base.arrays import readable
from alpenglow.base.errors import FeedError
from alpenglow.base.words import counted
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.host.image import Pictures, pictures

EMPTY = "the data set is empty, expected 1 sample or more"
"""The message for a data set without samples."""

LABELS = "labels"

Feeds = Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples that can be gone through again and again, and a label for each where there are any.

    `at` reads a sample by its number; so a data set need not fit into memory.
    """

    count: int
    at: Callable[[int], Feeds]
    labels: Array | None = None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Feeds]:
        return map(self.at, range(self.count))

    def first(self, count: int) -> Dataset:
        """Return `count` samples, evenly taken out of all; all if there are no more."""
        return self if count >= self.count else self._chosen(_evenly(count, self.count))

    def parted(self, count: int) -> tuple[Dataset, Dataset]:
        """Return `count` samples, evenly taken out of all, and the others.

        Raises FeedError if that leaves none in either part.
        """
        if not 0 < count < self.count:
            raise FeedError(
                f"count is {count}, expected 1 to {self.count - 1} of {self.count} samples"
            )
        chosen = _evenly(count, self.count)
        return self._chosen(chosen), self._chosen(np.delete(np.arange(self.count), chosen))

    def _chosen(self, numbers: Array) -> Dataset:
        labels = None if self.labels is None else self.labels[numbers]
        return Dataset(len(numbers), lambda i: self.at(int(numbers[i])), labels)

    @staticmethod
    def of(samples: Iterable[Any], types: Mapping[str, TensorType], labels: Any = None) -> Dataset:
        """Return samples that are held in memory, each in a form that `feeds_of` takes."""
        held = [feeds_of(s, types, i) for i, s in enumerate(samples)]
        return _labelled(len(held), lambda i: held[i], labels, "the samples")

    @staticmethod
    def read(path: str | Path, types: Mapping[str, TensorType]) -> Dataset:
        """Return the data set in a folder or .npz file, for inputs of these types.

        Raises FeedError if there is none, or if its arrays are not what the inputs need.
        """
        place = Path(path)
        if place.is_dir():
            return _in_folder(place, types)
        if not place.is_file():
            raise FeedError("expected a folder or file of samples, found none", file=str(path))
        return _in_file(place, types)


def feeds_of(sample: Any, types: Mapping[str, TensorType], number: int) -> dict[str, Array]:
    """Return the arrays of a sample by input.

    A sample is a mapping of input names to arrays, a tuple of arrays in the order of inputs, or the
    array of the only input.  Raises FeedError where it does not fit, or holds NaN or infinities.
    """
    if isinstance(sample, Mapping):
        by_name = dict(sample)
    else:
        arrays = sample if isinstance(sample, tuple | list) else (sample,)
        if len(arrays) != len(types):
            raise FeedError(
                f"sample {number} has {len(arrays)} arrays, expected inputs: {', '.join(types)}"
            )
        by_name = dict(zip(types, arrays, strict=True))
    if by_name.keys() != types.keys():
        raise FeedError(
            f"sample {number} has {', '.join(map(str, by_name)) or 'no arrays'}, "
            f"expected inputs: {', '.join(types)}"
        )
    feeds = {name: np.asarray(by_name[name]) for name in types}
    for name, array in feeds.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FeedError(
                f"sample {number}: input '{name}' holds NaN or infinities",
                hint="leave the sample out; a range with them in it has no scale",
            )
    return feeds


def _evenly(count: int, total: int) -> Array:
    return (np.arange(count) * total) // count


def _in_folder(folder: Path, types: Mapping[str, TensorType]) -> Dataset:
    files = sorted(f for f in folder.iterdir() if f.suffix in (".npy", ".npz"))
    apart = folder / f"{LABELS}.npy"
    if not files:
        return _of_pictures(folder, types)
    labels = _loaded(apart) if apart in files else None
    files = [f for f in files if f != apart]

    def at(i: int) -> Feeds:
        content = _loaded(files[i])
        sample = content if isinstance(content, np.ndarray) else {
            k: a for k, a in content.items() if k != LABELS}  # fmt: skip
        try:
            return feeds_of(sample, types, i)
        except FeedError as error:
            raise error.located(file=str(files[i])) from None

    if labels is None and files and files[0].suffix == ".npz" and LABELS in _loaded(files[0]):
        labels = [np.asarray(_loaded(f)[LABELS]).reshape(()) for f in files]
    return _labelled(len(files), at, labels, str(folder))


def _of_pictures(folder: Path, types: Mapping[str, TensorType]) -> Dataset:
    """Return the pictures of a folder as samples for the one input of a model."""
    files = pictures(folder)
    if not files:
        raise FeedError(EMPTY, file=str(folder))
    name, t = next(iter(types.items()))
    axis = 1 if t.rank == 4 and t.shape[1] in (1, 3) else t.rank - 1
    extents = [d for i, d in enumerate(t.shape[1:], 1) if i != axis]
    fixed = tuple(d for d in extents if isinstance(d, int))
    channels = t.shape[axis] if t.rank == 4 else 0
    many = t.rank == 4 and isinstance(t.shape[0], int) and t.shape[0] != 1
    usual = t.dtype in ("f32", "u8") and channels in (1, 3) and len(fixed) == 2 and not many
    if len(types) != 1 or not usual:
        inputs = ", ".join(f"{n} {x}" for n, x in types.items())
        raise FeedError(
            f"the folder has {counted(len(files), 'file')}, none a .npy or .npz; pictures are read "
            f"for one input f32 or u8 [1,3,H,W] or [1,H,W,3] of fixed size, and the inputs are "
            f"{inputs}",
            file=str(folder),
            hint="give arrays: a .npz file whose arrays have a first axis of samples",
        )

    def at(i: int) -> Feeds:
        height, width = fixed
        pixels = Pictures().read(files[i][0], height, width, 1 if channels == 1 else 3)
        placed = np.moveaxis(pixels, 0, axis - 1)[np.newaxis]
        return {name: np.rint(placed * 255).astype(np.uint8) if t.dtype == "u8" else placed}

    labels = [np.asarray(number) for _, number in files if number is not None] or None
    return _labelled(len(files), at, labels, str(folder))


def _in_file(path: Path, types: Mapping[str, TensorType]) -> Dataset:
    content = _loaded(path)
    arrays = {next(iter(types)): content} if isinstance(content, np.ndarray) else dict(content)
    labels = arrays.pop(LABELS, None)
    if len(types) == 1 and len(arrays) == 1:
        arrays = {next(iter(types)): next(iter(arrays.values()))}
    if arrays.keys() != types.keys():
        raise FeedError(
            f"the arrays are {', '.join(arrays) or 'none'}, expected inputs: {', '.join(types)}",
            file=str(path),
        )
    steps = {name: _rows(name, a, types[name], path) for name, a in arrays.items()}
    counts = {len(a) // (steps[name] or 1) for name, a in arrays.items()}
    if len(counts) != 1:
        told = ", ".join(f"'{k}' {len(a)}" for k, a in arrays.items())
        raise FeedError(f"arrays have samples {told}, expected equal numbers", file=str(path))

    def at(i: int) -> Feeds:
        rows = {n: a[i * r : (i + 1) * r] if (r := steps[n]) else a[i] for n, a in arrays.items()}
        try:
            return feeds_of(rows, types, i)
        except FeedError as error:
            raise error.located(file=str(path)) from None

    return _labelled(counts.pop(), at, labels, str(path))


def _rows(name: str, array: Array, t: TensorType, path: Path) -> int:
    """Return how many rows of an array are a sample; 0 if it has an axis of samples before them."""
    if array.ndim == t.rank + 1:
        return 0
    if array.ndim != t.rank or not t.rank:
        raise FeedError(
            f"array '{name}' has shape {array.shape}, expected samples of {t} along its first axis",
            file=str(path),
        )
    first = t.shape[0]
    rows = int(first) if isinstance(first, int) else 1
    if len(array) % max(rows, 1):
        raise FeedError(
            f"array '{name}' has {len(array)} rows, expected a multiple of the {rows} of {t}",
            file=str(path),
        )
    return max(rows, 1)


def _labelled(count: int, at: Callable[[int], Feeds], labels: Any, where: str) -> Dataset:
    if not count:
        raise FeedError(EMPTY, file=where)
    if labels is None:
        return Dataset(count, at)
    flat = np.asarray(labels).reshape(-1)
    if flat.dtype.kind not in "iu" or len(flat) % count:
        raise FeedError(
            f"{len(flat)} labels of {flat.dtype} do not fit {count} samples: expected a number "
            "each",
            file=where,
        )
    return Dataset(count, at, flat.reshape(count, -1))


def _loaded(path: Path) -> Any:
    """Return what a .npy or .npz file holds; raise FeedError if it is neither."""
    try:
        with readable():
            content = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None)
            return content if isinstance(content, np.ndarray) else dict(content)
    except (ValueError, OSError) as error:
        raise FeedError(f"expected a .npy or .npz file: {error}", file=str(path)) from None
