"""Together: the gradient of the whole program, an element of its Clarke set.

Every function takes a seed, which decides the direction, and ``tol``, within which quantities count as tied:

==============================================================  ==================================================
``grad(f, argnums=0, has_aux=False, seed=0, tol=0.0)(*args)``    the gradient; ``(gradient, aux)`` with aux
``value_and_grad(f, ...)(*args)``                                ``(value, gradient)``; ``((value, aux), gradient)``
``backward(closure, params, seed=0, tol=0.0)``                   the loss; adds to ``.grad`` as its ``backward()``
``jvp(f, primals, tangents, has_aux=False, tol=0.0)``            ``(value, derivative)``, one-sided at kinks
``min_norm(f, argnums=0, seed=0, tol=0.0, ...)(*args)``          `MinNorm`: the least element
``element(f, argnums=0, has_aux=False, ...)(*args)``             `Element`: gradient, direction, certificate
``elements(f, argnums=0, seed=0, tol=0.0, tries=32)(*args)``     the distinct `Element`s found, not all
``directions(f, ...)(*args)``                                    the directions of those
==============================================================  ==================================================

`Refused` is raised, with the line of the program, where there is no such gradient.
"""

from subgrad.clarke.api import backward, element, grad, value_and_grad
from subgrad.clarke.arguments import Element
from subgrad.clarke.directional import jvp
from subgrad.clarke.engine.errors import Refused
from subgrad.clarke.least_element import MinNorm, directions, elements, min_norm

__all__ = [
    "Element",
    "MinNorm",
    "Refused",
    "backward",
    "directions",
    "element",
    "elements",
    "grad",
    "jvp",
    "min_norm",
    "value_and_grad",
]


def __dir__() -> list[str]:
    return sorted(__all__)
