"""Loop forms of operators that move, pick, order, count or fill elements."""
