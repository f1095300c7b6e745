# Make a virtual environment that sees all packages of another one, for packages of its own.
#
#     sh tools/layer.sh BASE VENV
#
# What BASE has is not installed again (45 s and 700 MB an environment); what VENV installs comes
# first on its path.  Both have the Python of BASE.
set -eu
base=$(cd "$1" && pwd)
venv=$2
[ -x "$venv/bin/python" ] || "$base/bin/python" -m venv "$venv"
folder='import sysconfig; print(sysconfig.get_path("purelib"))'
below=$("$base/bin/python" -c "$folder")
echo "import site; site.addsitedir('$below')" >"$("$venv/bin/python" -c "$folder")/layer.pth"
