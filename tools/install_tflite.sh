# Make a virtual environment that has LiteRT and TFLite Micro, which models of TFLite are compared
# with by the tests.
#
#     sh tools/install_tflite.sh BASE VENV
set -eu
venv=$2
sh tools/layer.sh "$1" "$venv"
"$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
    "ai-edge-litert>=2.3,<3" "tflite-micro>=0.dev20261023182759,<1"
touch "$venv/tflite.stamp"
