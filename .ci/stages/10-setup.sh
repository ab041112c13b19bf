# A compiler if there is none, the environment, a CPU build of torch, everything else.
packages=()
command -v c++ >/dev/null || packages+=(g++)
command -v make >/dev/null || packages+=(make)
command -v git >/dev/null || packages+=(git)
# tests/view look at the page in a browser.
command -v chromium >/dev/null || packages+=(chromium)
# tests/metal_emu runs the .metal files through clang's "C++ for OpenCL"; 17 is the oldest that knows bfloat.
command -v clang++-19 >/dev/null || packages+=(clang-19)
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
if ((${#packages[@]})); then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${packages[@]}" >/dev/null
fi
[[ -x $BIN/python ]] || python3 -m venv .venv
"$BIN/python" -c 'import torch' 2>/dev/null || "$BIN/python" -m pip install --quiet torch==2.13.0 numpy
make --no-print-directory setup
# The real spconv lies apart, where its stand-in does not meet it.
[[ -d .venv/parity ]] || "$BIN/python" -m pip install --quiet --target .venv/parity spconv==2.3.8
# torch_geometric's two generations, with the little that an import of them needs (2 MB each).
for version in 2.7 2.8; do
    [[ -d .venv/pyg-$version ]] || "$BIN/python" -m pip install --quiet --no-deps --target ".venv/pyg-$version" \
        "torch_geometric==$version.*" psutil tqdm xxhash
done
