"""Simulations with contact, friction and limiters, as loops and by masks."""

from __future__ import annotations

import torch
from torch import Tensor

from clarke.ordinary.entries import numbers, ordinary


@ordinary("physics", [0.5, -1.0], smooth=False)
def bouncing_ball(state: Tensor) -> Tensor:
    """Without gravity: it meets the floor exactly at the end of the second step, and the program asks if it did."""
    y, v = state
    step, restitution = 0.25, 0.5
    for _ in range(2):
        time_to_floor = -y / v
        if v < 0 and time_to_floor < step:
            y, v = restitution * -v * (step - time_to_floor), -restitution * v
        else:
            y = y + step * v
    return y


@ordinary("physics", [1.0, -0.5, 0.5, 0.0], smooth=False)
def friction(v: Tensor) -> Tensor:
    slowed = torch.sign(v) * torch.relu(v.abs() - 0.5)
    return (slowed * numbers(1, 2, 3, 4)).sum() + 0.5 * (slowed**2).sum()


@ordinary("physics", [0.0, -1.0, 3.0], smooth=False)
def spring_with_contact(state: Tensor) -> Tensor:
    x, v, stiffness = state
    for _ in range(4):
        force = -x
        if x < 0:
            force = force - stiffness * x
        v = v + 0.5 * force
        x = x + 0.5 * v
    return x**2 + v


@ordinary("physics", [1.0, 2.0, 0.5], smooth=False)
def equation_of_state(density: Tensor) -> Tensor:
    soft = density**1.5
    hard = 1 + 3 * (density - 1) + (density - 1) ** 2
    return torch.where(density < 1, soft, hard).sum()


@ordinary("physics", [1.0, 0.0, -1.0, 2.0], [0.0, 1.0, 3.0, 1.0], smooth=False)
def upwind(u: Tensor, q: Tensor) -> Tensor:
    backward, forward = q - q.roll(1), q.roll(-1) - q
    moved = q - 0.1 * torch.where(u > 0, u * backward, u * forward)
    return (moved**2).sum() + moved[0]


@ordinary("physics", [0.0, 1.0, 2.0, 2.0, 1.0], smooth=False)
def minmod_limiter(q: Tensor) -> Tensor:
    a, b = q[1:-1] - q[:-2], q[2:] - q[1:-1]
    slopes = 0.5 * (torch.sign(a) + torch.sign(b)) * torch.minimum(a.abs(), b.abs())
    faces = q[1:-1] + 0.5 * slopes
    return (faces * numbers(1, 2, 4)).sum()


@ordinary("physics", [0.0, 1.0, 2.0, 4.0], smooth=False)
def superbee_limiter(q: Tensor) -> Tensor:
    a, b = q[1:-1] - q[:-2], q[2:] - q[1:-1]
    r = a / torch.where(b.abs() > 1e-12, b, torch.full_like(b, 1e-12))
    zero = torch.zeros_like(r)
    limiter = torch.maximum(torch.maximum(zero, torch.minimum(2 * r, zero + 1)), torch.minimum(r, zero + 2))
    return (limiter * b * numbers(1, 3)).sum()


@ordinary("physics", [2.0, 0.0, 0.0], smooth=False)
def plastic_return(stress: Tensor) -> Tensor:
    size = stress.norm()
    excess = size - 2.0
    if excess > 0:
        stress = stress * (2.0 / size)
    return (stress * numbers(3, 1, -1)).sum()


@ordinary("physics", [0.0, 1.0, 3.0, -1.0], smooth=False)
def melting(enthalpy: Tensor) -> Tensor:
    temperature = torch.where(enthalpy < 0, enthalpy, torch.where(enthalpy > 1, 2 * (enthalpy - 1), 0 * enthalpy))
    return (temperature * numbers(1, 2, 3, 4)).sum()


@ordinary("physics", [4.0], smooth=False)
def damped_until_it_stops(v: Tensor) -> Tensor:
    way, speed = v.new_zeros(()), v[0]
    for _ in range(10):
        speed = speed - 1
        if speed <= 0:
            break
        way = way + 0.5 * speed
    return way + torch.relu(speed)
