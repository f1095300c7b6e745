"""Backends turn planned programs into artifacts; `registry` finds the one for a target."""
