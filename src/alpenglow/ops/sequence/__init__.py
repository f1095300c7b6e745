"""Operators that go through a sequence: recurrent layers, spectra, caches, CTC."""
