"""How kernels are compiled: numba, cached on disk, strict IEEE arithmetic. The only file that imports numba.

Kernels are annotated with Any: numba takes the types from the arrays that it is given, and a module's head says what
those are. Compiled code is kept beside the source and renewed when its own file changes, but not when a kernel that it
calls in another file does: after such a change, `make clean`.
"""

from collections.abc import Callable
from typing import Any, Final

from proctor.errors import MissingExtraError

try:
    import numba
    from numba.core import cgutils, types
    from numba.extending import intrinsic
except ImportError:
    raise MissingExtraError("a batched environment", package="numba", extra="vector") from None

# No fastmath: a result must not depend on how a loop was vectorised. Division by zero gives inf, as in numpy.
compiled: Callable[[Callable[..., Any]], Any] = numba.njit(
    cache=True, nogil=True, error_model="numpy", boundscheck=False
)
# For what is called in a loop with many arrays: a call would count the references to each of them.
inlined: Callable[[Callable[..., Any]], Any] = numba.njit(
    cache=True, nogil=True, error_model="numpy", boundscheck=False, inline="always"
)


def _move_bytes_in_python(array: Any, to: Any, origin: Any, count: Any) -> None:
    array[to : to + count] = array[origin : origin + count].copy()


@intrinsic
def _compile_memmove(context: Any, array: Any, to: Any, origin: Any, count: Any) -> Any:
    """Make a compiled function move `count` bytes of a flat int8 array from `origin` to `to`, which may overlap."""
    if not isinstance(array, types.Array) or array.ndim != 1 or array.dtype != types.int8 or array.layout != "C":
        return None  # numba then says that there is no such function for these types

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = target.make_array(signature.args[0])(target, builder, arguments[0]).data
        there, here = (builder.gep(data, [place]) for place in arguments[1:3])
        cgutils.raw_memmove(builder, there, here, arguments[3], 1)
        return target.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64), generate


# A loop in the kernel would go byte by byte, because the two ranges overlap.
_compile_memmove.py_func = _move_bytes_in_python
move_bytes: Final[Callable[[Any, Any, Any, Any], None]] = _compile_memmove
"""Move `count` bytes of a flat int8 array from one place to another: `moved(array, to, origin, count)`."""
