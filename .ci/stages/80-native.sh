# The CPU engine outside Python: thread, address and undefined-behaviour sanitizers on a C++ driver,
# and the 64-bit Arm path under an emulator.
packages=()
command -v aarch64-linux-gnu-g++ >/dev/null || packages+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || packages+=(qemu-user)
if ((${#packages[@]})); then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${packages[@]}" >/dev/null
fi
tests/cpu/run_sanitizers.sh
tests/cpu/run_neon.sh
