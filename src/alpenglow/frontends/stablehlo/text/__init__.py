"""Reading StableHLO as text."""
