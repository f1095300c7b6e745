"""The loop form of incomplete gamma functions and zeta: as many iterations as an element needs."""

from __future__ import annotations

from alpenglow.extras.special.incomplete import IncompleteGamma, Zeta
from alpenglow.loops.form import push
from alpenglow.loops.iterated import iterated

push(IncompleteGamma, Zeta)(iterated)
