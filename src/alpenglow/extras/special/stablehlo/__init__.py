"""Special functions of CHLO."""
