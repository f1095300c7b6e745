"""Loop forms of control flow that is one kernel."""
