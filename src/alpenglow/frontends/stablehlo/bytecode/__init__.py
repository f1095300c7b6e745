"""Reading StableHLO as bytecode."""
