"""What a host has seen: how long requests waited and ran, and how busy its workers were."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

LAST = 1024
"""Of how many of the newest requests quantiles are taken."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """How many there were, their mean, and what half and 99 of 100 of the newest did not exceed."""

    count: int
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class NetworkStatistics:
    """How long requests that succeeded waited before they first ran, and took from then on."""

    queue: Seconds
    run: Seconds


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """The share of its time in which a worker ran something, how often, and how often that failed.

    `lost` says why it was taken out; it is empty while the worker serves.
    """

    busy: float
    requests: int
    failures: int
    lost: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of each worker by name, and of each network by name and version; `waiting` requests wait."""

    workers: dict[str, WorkerStatistics]
    networks: dict[tuple[str, int], NetworkStatistics]
    waiting: int

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON can hold them; networks by names like ``twice:1``."""
        return {
            "workers": {name: asdict(w) for name, w in self.workers.items()},
            "networks": {f"{name}:{v}": asdict(n) for (name, v), n in self.networks.items()},
            "waiting": self.waiting,
        }


@dataclass(slots=True)
class Times:
    """Seconds as they come."""

    count: int = 0
    total: float = 0.0
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.newest.append(seconds)

    def seconds(self) -> Seconds:
        """Return what there was so far."""
        if not self.count:
            return Seconds(0, 0.0, 0.0, 0.0)
        row = sorted(self.newest)
        p50, p99 = (row[min(len(row) - 1, len(row) * share // 100)] for share in (50, 99))
        return Seconds(self.count, self.total / self.count, p50, p99)
