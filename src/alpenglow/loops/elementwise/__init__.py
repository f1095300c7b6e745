"""Loop forms of operators that compute each element by itself."""
