"""Loop forms of trees, n-grams and probabilities."""

from alpenglow.extras.ml.loops import grams, probability, tree

__all__ = ["grams", "probability", "tree"]
