"""How much work a model is, how fast it goes, how fast it could go, and what makes it faster."""
