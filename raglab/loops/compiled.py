"""Compiled loops (algebra): the one door to numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from raglab.arguments.plain_arrays import refuse

Function = TypeVar("Function", bound=Callable[..., Any])
Kernel = TypeVar("Kernel")

ENGINES = ("auto", "numpy", "numba")


def compile_kernel(
    inline: str = "never", *, checked: bool = True
) -> Callable[[Function], Function]:
    """Decorator that compiles a function once and keeps it on disk, by exact arithmetic.

    Other threads run meanwhile.

    Args:
      checked: whether dividing by zero raises; where it does not, loops of divisions run several at
        once.
    """
    from numba import njit

    model = "python" if checked else "numpy"
    decorator: Callable[[Function], Function] = njit(
        cache=True, inline=inline, error_model=model, nogil=True
    )
    return decorator


def bit_draws() -> tuple[Callable[..., Any], ...]:
    """Draws of a generator's bits in compiled code.

    Uniform, normal, gamma (shape), beta (a, b), Student (df).

    They take `generator.bit_generator`, and draw what its methods draw: a method counts references
    to its generator at each call, which takes longer than the draw.
    """
    # Imported by name, so that a numba which has them elsewhere is a numba that is not there: NumPy
    # does the work.
    from numba.np.random.distributions import (
        random_beta,
        random_standard_gamma,
        random_standard_normal,
        random_standard_t,
    )
    from numba.np.random.generator_core import next_double

    return (
        next_double,
        random_standard_normal,
        random_standard_gamma,
        random_beta,
        random_standard_t,
    )


def check_engine(engine: str) -> None:
    """Refuse an engine that is none.

    Raises:
      ValueError: it is not of `ENGINES`.
    """
    if engine not in ENGINES:
        refuse(
            "engine must be auto, numpy or numba",
            repr(engine),
            "auto takes numba where it is installed",
        )


def kernel_of(engine: str, load: Callable[[], Kernel]) -> Kernel | None:
    """Compiled kernel of an engine; None where NumPy is to do the work.

    Args:
      engine: numpy, numba, or auto: numba where it is installed.
      load: imports the kernel, only where it is wanted.

    Raises:
      ValueError: another engine.
      ImportError: numba is asked for, and is not installed.
    """
    check_engine(engine)
    if engine == "numpy":
        return None
    try:
        return load()
    except ImportError:
        if engine == "numba":
            msg = (
                "engine numba needs the package numba; install raglab-toolkit[fast], or use "
                "engine='numpy'."
            )
            raise ImportError(msg) from None
        return None
