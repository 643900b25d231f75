"""How kernels are compiled: numba, cached on disk, strict IEEE arithmetic. The only file that imports numba.

Kernels are annotated with Any: numba takes the types from the arrays that it is given, and a module's head says what
those are. Compiled code is kept beside the source and renewed when its own file changes, but not when a kernel that it
calls in another file does: after such a change, `make clean`.
"""

from collections.abc import Callable
from typing import Any

from proctor.errors import MissingExtraError

try:
    import numba
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
