"""Control flow: operators that run their regions, as often as numbers or data say."""
