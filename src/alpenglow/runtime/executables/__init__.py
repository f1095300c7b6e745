"""The kinds of executables, and what they tell of themselves."""
