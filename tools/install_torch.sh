# Make a virtual environment that has PyTorch and libraries of models for it, for the tests alone.
#
#     sh tools/install_torch.sh BASE VENV
#
# The build for CPUs is named exactly and comes first: a range brings gigabytes of CUDA.  torchvision,
# timm and torchao ask for builds of torch that would replace it, so they come without what they ask
# for.
set -eu
venv=$2
sh tools/layer.sh "$1" "$venv"
pip="$venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check"
$pip torch==2.13.0 pyyaml
$pip --no-deps "torchvision>=0.28,<0.30" "timm>=1.0,<2" "torchao>=0.18,<0.19"
$pip "transformers>=5.20,<6" "safetensors>=0.6,<1"
# What PyTorch's samples of its modules and operators need, and what torch.onnx exports with.
$pip "expecttest>=0.3,<1"
$pip "onnxscript>=0.7,<1"
touch "$venv/torch.stamp"
