"""Converters for com.microsoft."""
