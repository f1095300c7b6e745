# Make a virtual environment if there is none, and install the package into it with an extra.
#
#     sh tools/install.sh PYTHON EXTRA VENV
#
# On success VENV/EXTRA.stamp is new: make does it again only when pyproject.toml has changed.
set -eu
python=$1
extra=$2
venv=$3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Alpenglow needs Python 3.11 or newer; $python is $("$python" -V 2>&1)." \
        "Name another one: make PYTHON=python3.13 ..." >&2
    exit 1
}
echo "installing into $venv (extra: $extra)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --editable ".[$extra]"
[ "$extra" = demo ] || [ "$extra" = docs ] || PYTHONPATH=tests "$venv/bin/python" -c "import node_cases; node_cases.store()"
touch "$venv/$extra.stamp"
