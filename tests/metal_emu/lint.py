"""Source rules that Apple's compiler or `compile_shader` enforces and the compilers used here do
not."""

import re

from sparse3d.cuda._source import POSITIONS, KernelSource, parse_kernels, strip_comments

_FORBIDDEN = [
    (r"\bdouble\b", "Metal has no double"),
    (r"\bgoto\b", "Metal has no goto"),
    (r"\b(?:new|delete|throw|try|catch|dynamic_cast|typeid|virtual|thread_local)\b", "not in MSL"),
    (r"\bstd::", "there is no C++ standard library"),
    (r"\bfunction_constant\b", "compile_shader sets no function constants"),
    (r"\[\[\s*threadgroup\s*\(", "compile_shader binds no dynamic threadgroup memory"),
    (r"\bif\s+constexpr\b", "C++17; MSL 3 is based on C++14"),
    (r"\[[=&]?\]\s*\(", "lambdas need MSL 3.2"),
    (r"\bauto\s*\[", "structured bindings are C++17"),
    (r"\bnamespace\s+\w+\s*::", "nested namespace definitions are C++17"),
    (r"\btemplate\s*\[\[\s*host_name", "specialise by macros: one library per type"),
    (r"\blong long\b", "long long is not in MSL; use long"),
    (r"\b(?:printf|assert|malloc|memcpy|memset)\s*\(", "there is no C library"),
    (r'#include\s*"', "system headers only: compile_shader has one source string"),
    (r"\bmemory_order_(?!relaxed)\w+", "MSL 3.1 atomics are relaxed only"),
    (r"\batomic_compare_exchange_strong\w*", "Metal has the weak form only"),
    (r"\batomic_thread_fence\b", "needs MSL 3.2"),
    (r"\bcoherent\s*\(", "needs MSL 3.2"),
    (r"^\s*#\s*define\s+[A-Z]\b", "one-letter macros break Apple's headers; prefix with SP_"),
]

# Functions of namespace metal: a helper of the same name becomes ambiguous after `using namespace
# metal`.
_RESERVED = frozenset(
    [
        "abs",
        "acos",
        "all",
        "any",
        "asin",
        "atan",
        "atan2",
        "bitselect",
        "ceil",
        "clamp",
        "clz",
        "cos",
        "cross",
        "ctz",
        "degrees",
        "distance",
        "dot",
        "exp",
        "exp2",
        "extract_bits",
        "fabs",
        "fast_normalize",
        "fdim",
        "floor",
        "fma",
        "fmax",
        "fmin",
        "fmod",
        "fract",
        "frexp",
        "insert_bits",
        "isfinite",
        "isinf",
        "isnan",
        "ldexp",
        "length",
        "log",
        "log2",
        "mad24",
        "max",
        "median3",
        "min",
        "mix",
        "modf",
        "mul24",
        "mulhi",
        "normalize",
        "popcount",
        "pow",
        "precise",
        "radians",
        "reduce",
        "reflect",
        "refract",
        "reverse_bits",
        "rint",
        "rotate",
        "round",
        "rsqrt",
        "saturate",
        "select",
        "sign",
        "sin",
        "sincos",
        "sinh",
        "smoothstep",
        "sqrt",
        "step",
        "tan",
        "tanh",
        "trunc",
        "vertex",
        "fragment",
        "sampler",
        "texture",
        "patch",
        "ray_data",
    ]
)
_FUNCTION = re.compile(
    r"^\s*(?:static\s+)?inline\s+[\w:<>]+\s+(?:[*&]\s*)?(\w+)\s*\(", re.MULTILINE
)


def _lines(text: str) -> list[str]:
    found = []
    for pattern, why in _FORBIDDEN:
        for match in re.finditer(pattern, text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"line {line}: {match.group().strip()}: {why}")
    for match in _FUNCTION.finditer(text):
        if match.group(1) in _RESERVED:
            found.append(f"{match.group(1)}: a function of namespace metal; prefix it with sp_")
    return found


def _signature(kernel: KernelSource) -> list[str]:
    found, indices = [], [p.index for p in kernel.buffers]
    if len(indices) > 31 or any(i > 30 for i in indices):
        found.append("more than 31 buffers")
    if indices != list(range(len(indices))):
        found.append("buffer indices are not 0..n-1 in order (compile_shader binds by position)")
    sizes = {re.sub(r"[a-z ]", "", p.type) for p in kernel.parameters if p.attribute in POSITIONS}
    if len(sizes) > 1:
        found.append("position attributes must all be scalars or vectors of one size")
    for p in kernel.parameters:
        if not p.indirection and not re.fullmatch(r"(?:const )?(?:uint|ushort)[23]?", p.type):
            found.append(f"{p.name} must be uint or ushort, got {p.type}")
        if p.indirection == "&" and "constant" not in p.type.split():
            found.append(f"reference {p.name} must be constant")
        if p.indirection and re.search(r"\b(?!packed_)\w+3$|\bbool$", p.type):
            found.append(
                f"{p.name}: {p.type} has another layout than the host's array; "
                "use packed or scalar types"
            )
    return [f"{kernel.name}: {why}" for why in found]


def lint(text: str) -> list[str]:
    """Complaints about a source; an empty list means none."""
    found = []
    try:
        text.encode("ascii")
    except UnicodeEncodeError as error:
        found.append(
            f"offset {error.start}: not ASCII, which is how compile_shader decodes sources"
        )
    found += _lines(strip_comments(text))
    for kernel in parse_kernels(text):
        found += _signature(kernel)
    return found
