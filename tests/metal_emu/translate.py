"""Entry points for the emulator: functions that fetch a kernel's arguments from the runtime."""

from sparse3d.cuda._source import ATTRIBUTES, KernelSource, Parameter
from sparse3d.cuda._translate import ADDRESS_SPACES


def _builtin(p: Parameter, address_spaces: bool) -> str:
    number = ATTRIBUTES.index(p.attribute)
    kind = p.type.replace("const", "").strip()
    if kind[-1] not in "23":
        return f"({kind})rt_attr({number}, 0)"
    parts = ", ".join(f"rt_attr({number}, {d})" for d in range(int(kind[-1])))
    if address_spaces:
        return f"::metal::make_{kind}({parts})"
    return f"{kind}(::metal::msl_mk{kind[-1]}({parts}))"


def trampolines(kernels: list[KernelSource], address_spaces: bool) -> str:
    """One C function a kernel that fetches the kernel's arguments from the runtime and calls it."""
    lines = []
    for kernel in kernels:
        arguments = []
        for p in kernel.parameters:
            if p.indirection:
                pointer = f"({p.type}*)(ulong)rt_arg({p.index})"
                arguments.append(pointer if p.indirection == "*" else "*" + pointer)
            else:
                arguments.append(_builtin(p, address_spaces))
        call = f"{kernel.name}({', '.join(arguments)});"
        if not address_spaces:
            call = ADDRESS_SPACES.sub("", call)
        lines.append(f'extern "C" void emu_call_{kernel.name}() {{ {call} }}')
    return "\n".join(lines) + "\n"
