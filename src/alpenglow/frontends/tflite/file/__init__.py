"""Reading `.tflite` files."""
