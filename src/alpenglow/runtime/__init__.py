"""Running what was compiled: executables, their archives, and the team of threads."""
