# Make a virtual environment that has JAX, which programs of StableHLO are compared with by the tests.
#
#     sh tools/install_stablehlo.sh BASE VENV
set -eu
venv=$2
sh tools/layer.sh "$1" "$venv"
"$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check \
    "jax>=0.10,<0.11" "jaxlib>=0.10,<0.11" "flatbuffers>=25" "flax>=0.12,<0.13" "equinox>=0.13"
touch "$venv/stablehlo.stamp"
