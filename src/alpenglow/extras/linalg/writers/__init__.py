"""Writers of nodes of ONNX for linear algebra."""
