"""Loop forms of operators that go through a sequence."""
