"""From model files to graphs.  Each format has a folder with its own tables."""
