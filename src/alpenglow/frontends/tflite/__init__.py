"""TFLite: `.tflite` files, without anything of TensorFlow's."""
