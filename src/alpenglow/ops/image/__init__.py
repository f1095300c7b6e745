"""Operators on images: resizing, sampling, regions of interest, boxes."""
