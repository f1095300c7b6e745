"""Archives: reading, writing and signing."""
