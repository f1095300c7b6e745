"""Writers of nodes of ONNX for classical machine learning."""
