"""Loop forms of products, convolution and pooling."""
