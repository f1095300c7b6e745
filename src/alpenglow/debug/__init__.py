"""What finds mistakes: the pass after which outputs differ, the smallest model that fails."""
