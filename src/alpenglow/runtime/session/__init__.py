"""Sessions: variables that last from call to call."""
