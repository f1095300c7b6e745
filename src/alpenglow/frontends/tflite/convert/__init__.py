"""Converters of TFLite operators, a file a family; importing one registers them."""
