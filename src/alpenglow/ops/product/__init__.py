"""Matrix products, convolution, Einstein sums and attention."""
