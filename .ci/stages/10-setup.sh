# A compiler if there is none, the environment, a CPU build of torch, everything else.
if ! command -v c++ >/dev/null || ! command -v make >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq g++ make >/dev/null
fi
[[ -x $BIN/python ]] || python3 -m venv .venv
"$BIN/python" -c 'import torch' 2>/dev/null || "$BIN/python" -m pip install --quiet torch==2.13.0 numpy
make --no-print-directory setup
