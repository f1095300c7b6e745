"""An operator, a model format, a target and its backend, as somebody else would add them."""
