"""Random programs of any format: recipes know operations, writers know how a format says them."""
