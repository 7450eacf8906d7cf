"""Kernels as machine code: compiled by Numba, kept as object code, loaded and called without it.

Object code is what a linker takes. Ours has one way in, `ENTRY`, which takes numbers only: of an
array its address and its shape (and strides where they do not follow from that), of a scalar its
value. So it depends neither on the version of Python nor on those of NumPy and Numba, holds no
pickle, and LLVM's binding alone can load it: importing Numba takes longer than a small fit.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

Kernel = Callable[..., None]

ENTRY = "gecasmo_entry"
_MODULE = "gecasmo_kernel"
# What every process can find; memory for arrays inside of kernels comes from `malloc`.
_EVERYWHERE = frozenset(
    [
        *("ceil", "exp", "expm1", "floor", "fmod", "free", "log", "log1p", "malloc", "memcpy"),
        *("memmove", "memset", "pow", "sqrt"),
    ]
)
# Flags of NumPy's arrays.
_C, _F, _ALIGNED, _WRITEABLE = 0x1, 0x2, 0x100, 0x400
_ASKED = _C | _F | _ALIGNED | _WRITEABLE


class MachineKernel:
    """Machine code that is called like the function it was compiled from.

    Arguments of other types than those that it was made for are handed to `otherwise`. Errors
    inside of a kernel are an index that leaves its array, where `is_checked`, or missing memory.
    """

    def __init__(
        self,
        content: bytes,
        arguments: Sequence[Any],
        otherwise: Kernel,
        is_checked: bool = False,
        is_from_file: bool = False,
    ) -> None:
        self.is_from_file = is_from_file
        self._is_checked = is_checked
        self._otherwise = otherwise
        self._looks = tuple(map(look_of, arguments))
        self._engine = _loaded(content)
        made = ctypes.CFUNCTYPE(ctypes.c_int64, *_c_types(arguments))  # called without the GIL
        self._entry = made(self._engine.get_function_address(ENTRY))

    def __call__(self, *arguments: Any) -> None:
        values: list[Any] = []
        for argument, wanted in zip(arguments, self._looks, strict=True):
            if look_of(argument) != wanted:
                return self._otherwise(*arguments)
            if isinstance(argument, np.ndarray):
                values.append(argument.__array_interface__["data"][0])
                values.extend(argument.shape)
                if not wanted[2] & _C:
                    values.extend(argument.strides)
            elif isinstance(argument, np.generic):
                values.append(argument.item())
            else:
                values.append(argument)
        if self._entry(*values):
            if self._is_checked:
                raise IndexError("index is out of bounds")
            raise MemoryError("A compiled kernel found no memory for its arrays.")
        return None


def look_of(argument: Any) -> Any:
    """What decides the type of an argument."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags.num & _ASKED
        return argument.dtype, argument.ndim, flags & ~_F if flags & _C else flags
    return _scalar(type(argument))


def _scalar(kind: type) -> np.dtype[Any]:
    found = _SCALARS.get(kind)
    if found is None:
        found = _SCALARS[kind] = np.dtype(kind)
    return found


_SCALARS: dict[type, np.dtype[Any]] = {}  # NumPy takes longer to find them than to call a kernel


def signature_of(arguments: Sequence[Any]) -> str:
    """The types of arguments as text."""
    return " ".join(map(_type_name, arguments))


def _type_name(argument: Any) -> str:
    if not isinstance(argument, np.ndarray):
        return str(_scalar(type(argument)).str)
    dtype, ndim, flags = look_of(argument)
    layout = "C" if flags & _C else "F" if flags & _F else "A"
    kind = ("" if flags & _WRITEABLE else "r") + ("" if flags & _ALIGNED else "u")
    return f"{dtype.str}[{ndim}{layout}{kind}]"


def _c_types(arguments: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            n_numbers = argument.ndim * (1 if argument.flags.c_contiguous else 2)
            found += [ctypes.c_void_p, *[ctypes.c_int64] * n_numbers]
        else:
            found.append(np.ctypeslib.as_ctypes_type(_scalar(type(argument))))
    return found


# -- loading ---------------------------------------------------------------------------------------
def _loaded(content: bytes) -> Any:
    """An engine that holds the code. One for each kernel: names may be the same in several."""
    from llvmlite import binding

    if content[0]:
        _start_numba()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(content[1:]))
    engine.finalize_object()
    return engine


@cache
def _target() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_triple(binding.get_process_triple())


def _target_machine() -> Any:
    return _target().create_target_machine(jit=True)


def _start_numba() -> None:
    """Let LLVM know the addresses of what Numba's code may call."""
    import numba.core.registry
    import numba.core.runtime

    runtime: Any = numba.core.runtime
    registry: Any = numba.core.registry
    runtime.rtsys.initialize(registry.cpu_target.target_context)


# -- compiling -------------------------------------------------------------------------------------
def machine_code(function: Callable[..., None], arguments: Sequence[Any]) -> bytes:
    """The function compiled for such arguments: whether Numba has to be there, and object code."""
    import numba

    options: Any = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    signature = tuple(map(_numba_type, arguments))
    sys.modules.setdefault(_MODULE, types.ModuleType(_MODULE))  # Numba looks it up by its name
    made: Any = numba.njit(nogil=True, **options)(function)
    made.compile(signature)
    result = made.overloads[signature]
    module = result.library._final_module.clone()
    declared = {one.name for one in module.functions if one.is_declaration}
    _link(module, _entry(result, signature))
    if not declared.isdisjoint((*_MEMORY, _FREED)):
        _link(module, _memory())
    for one in module.functions:
        if not one.is_declaration and one.name != ENTRY:
            one.linkage = "internal"
    needed = {one.name for one in module.functions if one.is_declaration}
    needed |= {one.name for one in module.global_variables if one.is_declaration}
    foreign = {name for name in needed - _EVERYWHERE if not name.startswith("llvm.")}
    # On Windows only Numba knows where functions of C are.
    is_bound = bool(foreign) or sys.platform == "win32"
    content: bytes = result.library.codegen._tm.emit_object(module)
    return bytes([is_bound]) + content


def _numba_type(argument: Any) -> Any:
    import numba

    module: Any = numba
    if not isinstance(argument, np.ndarray):
        return module.from_dtype(_scalar(type(argument)))
    return module.typeof(argument)


def _link(module: Any, other: Any) -> None:
    import numba.core.cgutils
    from llvmlite import binding

    cgutils: Any = numba.core.cgutils
    parsed = binding.parse_assembly(cgutils.normalize_ir_text(str(other)))
    parsed.verify()
    module.link_in(parsed)


def _entry(result: Any, signature: Sequence[Any]) -> Any:
    """The way in: make arrays of numbers, call, and tell whether that failed."""
    from llvmlite import ir

    context = result.target_context
    module = context.create_module(ENTRY)
    number = ir.IntType(64)
    kinds: list[Any] = []
    for one in signature:
        if hasattr(one, "ndim"):
            address = context.get_data_type(one.dtype).as_pointer()
            kinds += [address, *[number] * (one.ndim * (1 if one.layout == "C" else 2))]
        else:
            kinds.append(context.get_data_type(one))
    entry = ir.Function(module, ir.FunctionType(number, kinds), ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block())
    given = iter(entry.args)
    arguments = []
    for one in signature:
        first = next(given)
        if hasattr(one, "ndim"):
            arguments.append(_array(context, builder, one, first, given))
        else:
            arguments.append(context.data_model_manager[one].from_data(builder, first))
    callee = context.declare_function(module, result.fndesc)
    nothing = result.signature.return_type
    status, _ = context.call_conv.call_function(builder, callee, nothing, signature, arguments)
    builder.ret(builder.zext(status.is_error, number))
    return module


def _array(context: Any, builder: Any, kind: Any, address: Any, given: Any) -> Any:
    """An array as Numba has it; memory that is not its own has no counter."""
    import numba.np.arrayobj
    from llvmlite import ir

    arrays: Any = numba.np.arrayobj
    shape = [next(given) for _ in range(kind.ndim)]
    size = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides: list[Any] = []
    if kind.layout == "C":
        step = size
        for length in reversed(shape):
            strides.insert(0, step)
            step = builder.mul(step, length)
    else:
        strides = [next(given) for _ in range(kind.ndim)]
    array = arrays.make_array(kind)(context, builder)
    arrays.populate_array(
        array, data=address, shape=shape, strides=strides, itemsize=size, meminfo=None
    )
    return array._getvalue()


# Numba counts who uses the memory of an array, in front of it.
_MEMORY = ("NRT_MemInfo_alloc_aligned", "NRT_MemInfo_alloc_safe_aligned")
_FREED = "NRT_MemInfo_call_dtor"


def _memory() -> Any:
    """Memory for arrays inside of kernels, laid out as Numba does: the number of users, two
    places for a function that is called at last, the address and the size."""
    from llvmlite import ir

    module = ir.Module("memory")
    number, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    malloc = ir.Function(module, ir.FunctionType(byte, [number]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), "free")
    head = 64
    for name in _MEMORY:
        function = ir.Function(module, ir.FunctionType(byte, [number, ir.IntType(32)]), name)
        size, align = function.args
        builder = ir.IRBuilder(function.append_basic_block())
        align = builder.zext(align, number)
        room = builder.add(builder.add(size, align), ir.Constant(number, head))
        found = builder.call(malloc, [room])
        with builder.if_then(builder.icmp_unsigned("!=", found, ir.Constant(byte, None))):
            begin = builder.ptrtoint(found, number)
            data = builder.add(builder.add(begin, ir.Constant(number, head - 1)), align)
            data = builder.and_(data, builder.neg(align))
            fields = builder.bitcast(found, number.as_pointer())
            for place, value in enumerate((1, 0, 0, data, size)):
                if isinstance(value, int):
                    value = ir.Constant(number, value)
                builder.store(value, builder.gep(fields, [ir.Constant(number, place)]))
        builder.ret(found)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), _FREED)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(free, [function.args[0]])
    builder.ret_void()
    return module


def defined(source: str, name: str) -> Kernel:
    """Run the source in a module of its own and return its function `name`.

    Only text written by our own generators gets here; it holds integers and fixed names.
    """
    module = types.ModuleType(_MODULE)
    exec(compile(source, f"<gecasmo {name}>", "exec"), vars(module))
    function: Kernel = getattr(module, name)
    return function
