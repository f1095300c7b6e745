"""The loop form of incomplete gamma functions and zeta: as many iterations as an element needs."""

from __future__ import annotations

from alpenglow.extras.special.incomplete import IncompleteGamma, Zeta
from alpenglow.loops.elementwise.iterated import iterated
from alpenglow.loops.form import push

push(IncompleteGamma, Zeta)(iterated)
