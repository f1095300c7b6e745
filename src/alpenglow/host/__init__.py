"""Networks on workers: who runs what, and who waits for whom."""
