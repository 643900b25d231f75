"""How kernels are compiled: numba, cached on disk, strict IEEE arithmetic. The only file that imports numba.

Kernels carry no annotations: numba takes the types from the arrays that it is given, and a kernel's docstring says
what those are.
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
