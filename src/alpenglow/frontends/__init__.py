"""From model files to graphs.  Each format has a folder with its own tables."""

from alpenglow.frontends.registry import FrontEnd, load

__all__ = ["FrontEnd", "load"]
