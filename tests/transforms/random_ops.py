"""Random ops from all families of rules, for random graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import torch
from torch.nn import functional as F

LIMIT = 6000
"""Elements of the largest value."""

aten = torch.ops.aten


@dataclass
class Pool:
    """What ops of a random graph may read."""

    values: list[torch.Tensor]
    """Floating-point values, the oldest first."""
    numbers: list[torch.Tensor]
    """Whole numbers from 0 to 999, to make indices from."""
    written: list[torch.Tensor] = field(default_factory=list)
    """Inputs that may be written to."""

    def like(self, r: Random, x: torch.Tensor) -> torch.Tensor:
        return r.choice([value for value in self.values if value.shape == x.shape])

    def index(self, r: Random, size: int, dims: int | None = None) -> torch.Tensor | None:
        """Indices below ``size``, of any shape or of so many dims."""
        fitting = [number for number in self.numbers if dims is None or number.dim() == dims]
        return r.choice(fitting) % size if fitting else None


Maker = Callable[[Random, torch.Tensor, Pool], torch.Tensor | None]
"""Makes a floating-point value from another one, and from any of the pool; None if it does not apply."""


def _dim(r: Random, x: torch.Tensor) -> int:
    return r.randrange(x.dim())


def _any(*makers: Maker) -> Maker:
    return lambda r, x, pool: r.choice(makers)(r, x, pool)


def _unary(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    ops = [torch.relu, torch.sin, torch.abs, torch.tanh, F.gelu, torch.sigmoid, lambda v: v.clamp(-1, 2)]
    return r.choice([*ops, lambda v: v * 2, lambda v: v + 1, lambda v: 3 - v, torch.clone])(x)


def _binary(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor:
    ops = [torch.add, torch.mul, torch.sub, torch.maximum, torch.minimum, lambda a, b: torch.lerp(a, b, 0.25)]
    return r.choice([*ops, lambda a, b: a.add(b, alpha=2), lambda a, b: torch.where(a > b, a, 0.5)])(x, pool.like(r, x))


def _broadcast(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor:
    def fits(value: torch.Tensor) -> bool:
        try:
            return torch.Size(torch.broadcast_shapes(value.shape, x.shape)).numel() <= LIMIT
        except RuntimeError:
            return False

    return x + r.choice([value for value in pool.values if fits(value)])


# ---- views


def _permute(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    order = list(range(x.dim()))
    r.shuffle(order)
    return x.permute(order)


def _split_dim(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor | None:
    dim = _dim(r, x)
    factors = [f for f in range(2, x.shape[dim]) if x.shape[dim] % f == 0]
    if not factors or x.dim() > 4:
        return None
    return x.reshape(*x.shape[:dim], f := r.choice(factors), x.shape[dim] // f, *x.shape[dim + 1 :])


def _merge_dims(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor | None:
    if x.dim() < 2:
        return None
    dim = r.randrange(x.dim() - 1)
    return x.reshape(*x.shape[:dim], -1, *x.shape[dim + 2 :])


def _shape(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor | None:
    if x.dim() > 3:
        return x.squeeze()
    return r.choice([lambda: x.unsqueeze(r.randrange(x.dim() + 1)), lambda: x.unsqueeze(0).expand(3, *x.shape)])()


def _part(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor | None:
    """A view of some of the elements."""
    dim, size = (d := _dim(r, x)), x.shape[d]
    if size < 3:
        return None
    return r.choice(
        [
            lambda: x.narrow(dim, 1, size - 1),
            lambda: x.select(dim, 1),
            lambda: torch.ops.aten.slice(x, dim, 0, size, 2),
            lambda: x.split(size // 2, dim)[1],
            lambda: x.chunk(2, dim)[0],
            lambda: x.unbind(dim)[-1],
            lambda: x.unfold(dim, 2, 1),
            lambda: x.diagonal(0, 0, x.dim() - 1) if x.dim() > 1 else None,
        ]
    )()


def _copies(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    """Along one dim these need all of it, or make more of it."""
    dim = _dim(r, x)
    pad = (0, 0) * (x.dim() - 1 - dim) + (1, 2)
    times = [2 if d == dim else 1 for d in range(x.dim())]
    return r.choice(
        [
            lambda: x.flip(dim),
            lambda: x.roll(2, dim),
            lambda: torch.cat((x, x + 1), dim),
            lambda: torch.stack((x, x + 1), dim),
            lambda: F.pad(x, pad, value=0.5),
            lambda: x.repeat(times),
            lambda: x.repeat_interleave(2, dim),
            lambda: x.tril() if x.dim() > 1 else x,
        ]
    )()


# ---- reductions and what is made of them


def _reduce(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    def product(v: torch.Tensor, d: int, keepdim: bool) -> torch.Tensor:
        return torch.prod(torch.tanh(v), d, keepdim)

    return r.choice([torch.sum, torch.amax, torch.amin, torch.mean, torch.nansum, product])(
        x, _dim(r, x), keepdim=r.random() < 0.5
    )


def _select_one(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    """Reductions with indices, to counts, or to yes and no."""
    dim, keep = _dim(r, x), r.random() < 0.5
    return r.choice(
        [
            lambda: x.max(dim, keepdim=keep)[0],
            lambda: x.min(dim, keepdim=keep)[1].float(),
            lambda: x.argmax(dim, keepdim=keep).float() / 4,
            lambda: x.argmin().float() / 4,
            lambda: torch.aminmax(x, dim=dim, keepdim=keep)[1],
            lambda: (x > 0.25).any(dim, keepdim=keep).float(),
            lambda: (x > -1.5).all(dim, keepdim=keep).float(),
            lambda: (x > 0.25).sum(dim, keepdim=keep) / 2,
            lambda: torch.count_nonzero(x > 0.25, dim) / 2,
        ]
    )()


def _composite(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    dim, keep = _dim(r, x), r.random() < 0.5
    return r.choice(
        [
            lambda: torch.softmax(x, dim),
            lambda: torch.log_softmax(x, dim),
            lambda: x.var(dim, correction=0, keepdim=keep),
            lambda: x.std(dim, correction=0, keepdim=keep),
            lambda: sum(torch.var_mean(x, dim, correction=0, keepdim=keep)),
            lambda: torch.logsumexp(x, dim, keepdim=keep),
            lambda: torch.linalg.vector_norm(x, r.choice([1, 2, 3, float("inf")]), dim, keepdim=keep),
            lambda: F.layer_norm(x, x.shape[-1:]),
            lambda: F.rms_norm(x, x.shape[-1:]),
            lambda: x - x.mean(dim, keepdim=True),
            lambda: x.sum() * x,
        ]
    )()


def _scan(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    dim = _dim(r, x)
    return r.choice(
        [
            lambda: x.cumsum(dim) / 3,
            lambda: x.tanh().cumprod(dim),
            lambda: x.cummax(dim)[0],
            lambda: x.logcumsumexp(dim),
            lambda: x.sort(dim)[0],
            lambda: x.topk(min(3, x.shape[dim]), dim)[0],
            lambda: x.contiguous().median(dim)[0],  # of an expanded tensor torch reads past its end
        ]
    )()


# ---- products and windows


def _matmul(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor | None:
    if x.dim() == 3 and r.random() < 0.5:
        product = r.choice([torch.bmm, lambda a, b: torch.baddbmm(a[:, :, :1], a, b)])
        return product(x, x.transpose(1, 2)) / 4
    fitting = [v for v in pool.values if v.dim() == 2 and x.dim() >= 2 and v.shape[0] == x.shape[-1]]
    if not fitting:
        return None
    w = r.choice(fitting)
    return r.choice([lambda: torch.matmul(x, w) / 4, lambda: F.linear(x, w.t(), w[0]) / 4, lambda: x @ w[:, 0]])()


def _attention(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor | None:
    if x.dim() < 3:
        return None
    return F.scaled_dot_product_attention(x, pool.like(r, x), x, is_causal=r.random() < 0.5)


def _window(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor | None:
    if x.dim() != 3 or min(x.shape) < 2 or x.shape[2] < 4:
        return None
    return r.choice(
        [
            lambda: F.conv1d(x, x[:2, :, :2].clone(), padding=1) / 4,
            lambda: F.avg_pool1d(x, 2),
            lambda: F.max_pool1d(x, 2),
            lambda: F.interpolate(x, scale_factor=2.0),
            lambda: F.group_norm(x, 2) if x.shape[1] % 2 == 0 else F.instance_norm(x),
            lambda: F.batch_norm(x, x[0, :, 0].detach(), x[0, :, 1].detach().abs() + 1),
        ]
    )()


# ---- indices, masks, types


def _index(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor | None:
    dim, size = (d := _dim(r, x)), x.shape[d]
    row, any_shape = pool.index(r, size, 1), pool.index(r, size)
    same = [number for number in pool.numbers if number.shape == x.shape]
    at = r.choice(same) % size if same else None
    if row is None or any_shape is None:
        return None
    update = x.index_select(dim, row)
    return r.choice(
        [
            lambda: update,
            lambda: x[row % x.shape[0]],
            lambda: x[..., any_shape % x.shape[-1]],
            lambda: x.index_add(dim, row, update),
            lambda: x.index_put((row % x.shape[0],), x[row % x.shape[0]], accumulate=True),
            lambda: F.embedding(any_shape % x.shape[0], x) if x.dim() == 2 else None,
            lambda: x.gather(dim, at) if at is not None else None,
            lambda: x.scatter_add(dim, at, x) if at is not None else None,
            lambda: x.scatter(dim, at, 0.5) if at is not None else None,
            lambda: x * (any_shape % 2) if any_shape.shape == x.shape else None,
            lambda: (row.unsqueeze(1) == torch.arange(size)).float(),
        ]
    )()


def _mask(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor:
    y = pool.like(r, x)
    masks = [lambda: x > y, lambda: (x > 0) & (y < 0.5), lambda: torch.arange(x.shape[-1]) > 2, lambda: x.isnan()]
    mask = r.choice(masks)()
    return r.choice([lambda: x.masked_fill(mask, 0.25), lambda: torch.where(mask, x, y), lambda: mask.float() + x])()


def _constant(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    return r.choice(
        [
            lambda: x + torch.full(x.shape, 0.5),
            lambda: x * torch.arange(x.shape[-1]),
            lambda: torch.where(x > 0, x, torch.zeros_like(x)),
            lambda: x + torch.eye(x.shape[-1])[-1],
            lambda: x + x.new_ones(x.shape[-1:]),
        ]
    )()


def _cast(r: Random, x: torch.Tensor, _: Pool) -> torch.Tensor:
    dim = _dim(r, x)
    return r.choice(
        [
            lambda: x.to(torch.bfloat16).float(),
            lambda: (x.double().sum(dim, keepdim=True) / 3).float(),
            lambda: x.half().sum(dim).float() / 4,
            lambda: (x.to(torch.complex64) * 1j).abs(),
            lambda: (x * 3).round().int().sum(dim) / 8,
        ]
    )()


# ---- gradients and effects


def _backward(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor | None:
    dim, y = _dim(r, x), pool.like(r, x)

    def layer_norm() -> torch.Tensor:
        weight = x.reshape(-1, x.shape[-1])[0]
        _, mean, scale = aten.native_layer_norm(x, x.shape[-1:], weight, None, 1e-5)
        parts = aten.native_layer_norm_backward(y, x, x.shape[-1:], mean, scale, weight, None, [True, True, False])
        return r.choice(parts[:2])

    return r.choice(
        [
            layer_norm,
            lambda: aten._softmax_backward_data(y, x.softmax(dim), dim, x.dtype),
            lambda: aten._log_softmax_backward_data(y, x.log_softmax(dim), dim, x.dtype) / 4,
            lambda: aten.threshold_backward(y, x, 0),
            lambda: aten.gelu_backward(y, x),
            lambda: aten.slice_backward(y, x.shape, dim, 0, x.shape[dim], 1),
            lambda: F.mse_loss(x, y, reduction=r.choice(["none", "mean", "sum"])) / 4,
        ]
    )()


def _effect(r: Random, x: torch.Tensor, pool: Pool) -> torch.Tensor | None:
    """Writes into a copy, into a part of it, or into an input."""
    y = x.clone()
    dim = _dim(r, y)
    return r.choice(
        [
            lambda: y.mul_(2),
            lambda: y.add_(pool.like(r, x)).relu_(),
            lambda: y.select(dim, 0).zero_() + y.select(dim, 0),
            lambda: (y.narrow(dim, 0, 1).fill_(0.5), y)[1],
            lambda: r.choice(pool.written).mul_(0.5) if pool.written else None,
            lambda: (r.choice(pool.written).add_(1), y)[1] if pool.written else None,
            lambda: y + torch.rand_like(x),
        ]
    )()


MAKERS: tuple[Maker, ...] = (
    *(_unary, _unary, _unary, _binary, _binary, _broadcast, _broadcast, _permute, _split_dim, _merge_dims, _shape),
    *(_reduce, _reduce, _select_one, _composite, _composite, _matmul, _matmul, _attention),
    *(_any(_window, _part), _any(_part, _copies), _any(_scan, _copies), _index, _mask, _constant, _cast, _backward),
)
EFFECTS = _effect
