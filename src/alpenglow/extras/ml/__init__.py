"""Classical machine learning: trees, support vectors, labels and n-grams."""

from alpenglow.extras.ml import grams, labels, loops, ngrams, probability, tree

__all__ = ["grams", "labels", "loops", "ngrams", "probability", "tree"]
