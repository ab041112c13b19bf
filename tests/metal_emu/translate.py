"""Source-to-source steps: entry points for the emulator, and C++ for compilers without address
spaces."""

import re

from .source import ATTRIBUTES, KernelSource, Parameter, strip_comments

_SPACES = re.compile(r"\b(?:device|constant|threadgroup|thread)\b")
_SHARED = re.compile(
    r"\bthreadgroup\s+((?:const\s+)?[\w:]+(?:\s*<[^;>]*>)?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)*);"
)


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
            call = _SPACES.sub("", call)
        lines.append(f'extern "C" void emu_call_{kernel.name}() {{ {call} }}')
    return "\n".join(lines) + "\n"


def without_address_spaces(text: str) -> str:
    """Metal as C++ for g++ and nvcc. Opens `namespace metal {`; the caller closes it.

    The words are removed here and not by macros, because CUDA's headers use them inside attributes.
    The kernels
    go inside the namespace so that its functions hide those of <cmath>.
    """
    text = re.sub(r"\[\[.*?\]\]", "", strip_comments(text), flags=re.DOTALL)
    text = _SHARED.sub(r"MSL_SHARED \1 \2\3;", text)
    text = re.sub(r"^constant\s+(?=[^;*&()]*=)", "MSL_CONST ", text, flags=re.MULTILINE)
    text = re.sub(r"using\s+namespace\s+metal\s*;", "namespace metal {", text, count=1)
    for match in re.finditer(r"\bthreadgroup\b([^;,)=]*)", text):
        if not re.search(r"[*&]", match.group(1)):
            raise SyntaxError(f"threadgroup declaration not understood: {match.group().strip()}")
    return _SPACES.sub("", text)


def cuda_source(text: str, kernels: list[KernelSource]) -> str:
    """The same kernels as CUDA: one `__global__` entry each, `NAME_entry(pointers..., scalars by
    value)`."""
    parts = [without_address_spaces(text)]
    for kernel in kernels:
        signature, call = {}, []
        for p in kernel.parameters:
            kind = _SPACES.sub("", p.type).strip()
            if p.indirection:
                signature[p.index] = f"{kind}{'*' if p.indirection == '*' else ''} {p.name}"
                call.append(p.name)
                continue
            number, kind = ATTRIBUTES.index(p.attribute), kind.replace("const", "").strip()
            if kind[-1] in "23":
                axes = range(int(kind[-1]))
                call.append(f"{kind}({', '.join(f'metal::msl_attr({number}, {d})' for d in axes)})")
            else:
                call.append(f"({kind})metal::msl_attr({number}, 0)")
        declared = ", ".join(signature[i] for i in sorted(signature))
        parts.append(
            f'extern "C" __global__ void {kernel.name}_entry({declared}) '
            f"{{ {kernel.name}({', '.join(call)}); }}"
        )
    return "\n".join(parts) + "\n}  // namespace metal\n"
