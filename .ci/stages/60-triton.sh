# The Triton kernels through Triton's interpreter, in a process and an environment of their own: the CPU build of torch
# brings no triton, and the interpreter wants an older numpy. Where there is no wheel of triton, nothing is run.
triton=.venv/triton
if [[ ! -x $triton/bin/pytest ]]; then
    python3 -m venv "$triton"
    "$triton/bin/python" -m pip install --quiet torch==2.13.0 'numpy<2.3' pytest pytest-xdist hypothesis
    if ! "$triton/bin/python" -m pip install --quiet --no-deps triton==3.6.0; then
        echo "no triton for this machine: its kernels are not tested here"
        exit 0
    fi
fi
TRITON_INTERPRET=1 OMP_NUM_THREADS=1 "$triton/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" \
    -W ignore::DeprecationWarning:triton tests/cuda/test_triton.py
