"""Distances, signed distance fields, rays and rotations, where they are degenerate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from clarke.ordinary.entries import numbers, ordinary


@ordinary("geometry", [0.0, 2.0], [0.0, 0.0], [3.0, 0.0], smooth=True)
def point_to_segment(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    along = b - a
    t = ((p - a) @ along / (along @ along).clamp(min=1e-12)).clamp(0, 1)
    return (p - (a + t * along)).norm()


@ordinary("geometry", [[1.0, 1.0], [0.0, 0.0], [2.0, 1.0]], smooth=False)
def box_field(p: Tensor) -> Tensor:
    q = p.abs() - 1
    outside = q.clamp(min=0).norm(dim=1)
    inside = q.max(dim=1).values.clamp(max=0)
    return ((outside + inside) * numbers(1, 2, 3)).sum()


@ordinary("geometry", [0.0, 1.0], smooth=False)
def union_of_circles(p: Tensor) -> Tensor:
    left = (p - numbers(-1, 0)).norm() - 1
    right = (p - numbers(1, 0)).norm() - 1
    ground = p[1] - 1 + 2**0.5 - 1
    return torch.minimum(torch.minimum(left, right), ground)


@ordinary("geometry", [-2.0, -2.0, 0.0], [1.0, 1.0, 0.25], smooth=False)
def ray_through_a_box(origin: Tensor, direction: Tensor) -> Tensor:
    near = (-1 - origin) / direction
    far = (1 - origin) / direction
    enter = torch.minimum(near, far).amax()
    leave = torch.maximum(near, far).amin()
    return (leave - enter).clamp(min=0)


@ordinary("geometry", [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], smooth=False)
def area_of_a_flat_triangle(corners: Tensor) -> Tensor:
    a, b = corners[1] - corners[0], corners[2] - corners[0]
    return (a[0] * b[1] - a[1] * b[0]).abs() / 2


@ordinary("geometry", [0.0, 0.0, 0.0], smooth=True)
def rotation_by_axis_and_angle(r: Tensor) -> Tensor:
    point, angle = numbers(1, 2, 3), r.norm()
    safe = torch.where(angle > 0, angle, torch.ones_like(angle))
    one = torch.where(angle > 0, torch.sin(safe) / safe, torch.ones_like(angle))
    two = torch.where(angle > 0, (1 - torch.cos(safe)) / safe**2, 0.5 * torch.ones_like(angle))
    cross = torch.linalg.cross(r, point)
    turned = point + one * cross + two * torch.linalg.cross(r, cross)
    return (turned * numbers(1, -2, 0.5)).sum()


@ordinary("geometry", [[1.0, 2.0, 1.0], [0.0, 0.0, 3.0]], smooth=False)
def camera(points: Tensor) -> Tensor:
    depth = points[:, 2].clamp(min=1.0)
    image = 2.0 * points[:, :2] / depth[:, None]
    image = image.clamp(-4.0, 4.0)
    return F.l1_loss(image, numbers([[2.0, 4.0], [0.0, 0.5]]))


@ordinary("geometry", [1.0, 0.0], smooth=False)
def support_of_a_polygon(direction: Tensor) -> Tensor:
    corners = numbers([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    return (corners @ direction).max() + direction.norm()


@ordinary("geometry", [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], smooth=False)
def perimeter_with_a_double_corner(corners: Tensor) -> Tensor:
    edges = corners.roll(-1, 0) - corners
    return torch.linalg.vector_norm(edges, dim=1).sum()


@ordinary("geometry", [1.0, 2.0], smooth=False)
def bilinear_interpolation(p: Tensor) -> Tensor:
    image = numbers([[0.0, 1.0, 4.0, 2.0], [1.0, 3.0, 2.0, 5.0], [2.0, 2.0, 7.0, 1.0]])
    low = torch.floor(p)
    i, j = (low.long() - 0).clamp(min=0)
    a, b = p - low
    i2, j2 = (i + 1).clamp(max=2), (j + 1).clamp(max=3)
    top = (1 - b) * image[i, j] + b * image[i, j2]
    bottom = (1 - b) * image[i2, j] + b * image[i2, j2]
    return (1 - a) * top + a * bottom
