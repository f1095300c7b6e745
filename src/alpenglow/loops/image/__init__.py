"""Loop forms of operators on images."""
