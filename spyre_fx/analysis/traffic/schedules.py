"""The best of some simple schedules: loop nests of one level whose tiles are whole granules, or the whole extent.

Traffic is counted in elements moved between main memory and a scratchpad of ``capacity`` elements, loads and stores.
These are what a tiling may be measured against; the bounds below which nothing can go are in ``bounds.py``.

``sum_size`` says how many elements of capacity one element of a running sum takes: 1 where sums have the dtype of what
is summed up, 2 for float32 sums of half precision. What is added to a wider sum is widened first, as loops do it, and
is in the scratchpad in both forms: that is ``wide``, which is 0 for a ``sum_size`` of 1 and ``sum_size`` above.
Products on their own are single ops, whose sums are no values of a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

GRANULE = 64
"""Elements of a tile's smallest step: one stick of 128 bytes in half precision."""


@dataclass(frozen=True, order=True)
class Schedule:
    """How many elements a schedule moves, and with which tiles."""

    traffic: int
    name: str
    tiles: dict[str, int] = field(compare=False)
    working_set: int = field(compare=False)
    """Elements in the scratchpad at once."""


def tile_sizes(extent: int, granule: int = GRANULE) -> Iterator[int]:
    """Every multiple of the granule up to 16 of them, then every fourth one, and the whole extent."""
    tile = granule
    while tile < extent:
        yield tile
        tile += granule if tile < 16 * granule else 4 * granule
    yield extent


def matmul(m: int, n: int, k: int, capacity: int, granule: int = GRANULE) -> Schedule | None:
    """``C[M, N] = A[M, K] B[K, N]`` with a tile of C, or a panel of A or of B, kept while the rest streams.

    C kept:       MK ceil(N / b) + KN ceil(M / a) + MN    with ab + (a + b) g <= s
    A panel kept: MK + KN ceil(M / a) + MN                with aK + Kg + ag <= s
    B panel kept: KN + MK ceil(N / b) + MN                with Kb + Kg + bg <= s
    """
    thin_m, thin_n, thin_k = (min(granule, extent) for extent in (m, n, k))

    def candidates() -> Iterator[Schedule]:
        for a in tile_sizes(m, granule):
            for b in tile_sizes(n, granule):
                traffic = m * k * _ceil(n, b) + k * n * _ceil(m, a) + m * n
                yield Schedule(traffic, "product tile kept", {"m": a, "n": b}, a * b + (a + b) * thin_k)
            traffic = m * k + k * n * _ceil(m, a) + m * n
            yield Schedule(traffic, "left panel kept", {"m": a}, a * k + thin_n * (k + a))
        for b in tile_sizes(n, granule):
            traffic = k * n + m * k * _ceil(n, b) + m * n
            yield Schedule(traffic, "right panel kept", {"n": b}, b * k + thin_m * (k + b))

    return _best(candidates(), capacity)


def mlp(
    rows: int, width: int, hidden: int, out: int, capacity: int, granule: int = GRANULE, sum_size: int = 1
) -> Schedule | None:
    """``act(X[M, D] W1[D, H]) W2[H, O]`` fused over m rows and tiles of h hidden columns; None where none fits.

    ``M(D + O) + ceil(M / m) H(D + O)``, the weights only once if the whole hidden extent fits, with a working set of
    ``m(D + sum_size O + h) + h(O + max(D, wide (m + O)))``: what is widened takes the place of the tile of W1. It pays
    against ``separate_mlp`` for small D alone.
    """
    ends, wide = width + out, _wide(sum_size)

    def candidates() -> Iterator[Schedule]:
        for m in tile_sizes(rows, granule):
            for h in tile_sizes(hidden, granule):
                passes = 1 if h == hidden else _ceil(rows, m)
                traffic = rows * ends + passes * hidden * ends
                held = m * (width + sum_size * out + h) + h * (out + max(width, wide * (m + out)))
                yield Schedule(traffic, "fused", {"m": m, "h": h}, held)

    return _best(candidates(), capacity)


def separate_mlp(rows: int, width: int, hidden: int, out: int, capacity: int, granule: int = GRANULE) -> int | None:
    """The same with both products on their own, each at its best, and the activation inside the first."""
    first = matmul(rows, hidden, width, capacity, granule)
    second = matmul(rows, out, hidden, capacity, granule)
    return None if first is None or second is None else first.traffic + second.traffic


def linear_cross_entropy(
    rows: int, width: int, classes: int, capacity: int, granule: int = GRANULE, sum_size: int = 1
) -> Schedule | None:
    """Losses of ``X[B, D] W[V, D]^T`` with b rows kept and tiles of v classes streaming past an online logsumexp.

    ``BD + ceil(B / b) VD + 2 B`` (targets read, losses written), or the weights once if all classes fit, with a working
    set of ``bD + vD + bv + 3 sum_size b + wide bv`` (maximum, sum and target logit of each row). Against the product on
    its own, which writes and reads BV logits, it pays for b > D / 2.
    """
    wide = _wide(sum_size)

    def candidates() -> Iterator[Schedule]:
        for b in tile_sizes(rows, granule):
            for v in tile_sizes(classes, granule):
                passes = 1 if v == classes else _ceil(rows, b)
                traffic = rows * width + passes * classes * width + 2 * rows
                held = b * width + v * width + b * v + 3 * sum_size * b + wide * b * v
                yield Schedule(traffic, "online", {"b": b, "v": v}, held)

    return _best(candidates(), capacity)


def attention(
    queries: int, keys: int, depth: int, capacity: int, granule: int = GRANULE, sum_size: int = 1
) -> Schedule | None:
    """One head with tiles of q queries and k keys and an online softmax (Dao et al. 2022, FlashAttention).

    ``2 Nq d + ceil(Nq / q) 2 Nk d``, the keys and values once if all of them fit, with a working set of
    ``(1 + sum_size) qd + 2 kd + qk + 2 sum_size q + wide k(q + d)``.
    """
    wide = _wide(sum_size)

    def candidates() -> Iterator[Schedule]:
        for q in tile_sizes(queries, granule):
            for k in tile_sizes(keys, granule):
                passes = 1 if k == keys else _ceil(queries, q)
                traffic = 2 * queries * depth + passes * 2 * keys * depth
                held = (1 + sum_size) * q * depth + 2 * k * depth + q * k + 2 * sum_size * q + wide * k * (q + depth)
                yield Schedule(traffic, "online", {"q": q, "k": k}, held)

    return _best(candidates(), capacity)


def attention_by_query_rows(
    queries: int, keys: int, depth: int, capacity: int, granule: int = GRANULE
) -> Schedule | None:
    """One head with tiles of q queries and whole rows of scores: a working set of ``2 qd + 2 gd + q Nk``."""

    def candidates() -> Iterator[Schedule]:
        for q in tile_sizes(queries, granule):
            traffic = 2 * queries * depth + _ceil(queries, q) * 2 * keys * depth
            yield Schedule(traffic, "query rows", {"q": q}, 2 * depth * (q + granule) + q * keys)

    return _best(candidates(), capacity)


def attention_in_three_steps(queries: int, keys: int, depth: int) -> int:
    """One head as product, softmax and product, each through main memory: the scores are moved four times."""
    return 2 * depth * (queries + keys) + 4 * queries * keys


def attention_op_by_op(queries: int, keys: int, depth: int) -> int:
    """One head as product, scale, amax, sub, exp, sum, div and product: the scores are moved twelve times."""
    return 2 * depth * (queries + keys) + 12 * queries * keys


def row_passes(count: int, length: int, capacity: int) -> dict[str, int]:
    """A softmax over ``count`` rows of ``length``, by how often the rows are moved.

    ``"kept"`` only if a row and its result fit; ``"online"`` reads the rows for maximum and sum together, then again;
    ``"three passes"`` reads them once for each; ``"op by op"`` moves them for amax, sub, exp, sum and div.
    """
    elements = count * length
    kept = {"kept": 2 * elements} if 2 * length <= capacity else {}
    return kept | {"online": 3 * elements, "three passes": 4 * elements, "op by op": 8 * elements}


def _best(candidates: Iterable[Schedule], capacity: int) -> Schedule | None:
    """The least traffic among the candidates that fit; the first one found of equals."""
    fitting = (schedule for schedule in candidates if schedule.working_set <= capacity)
    by_traffic: Callable[[Schedule], int] = lambda schedule: schedule.traffic  # noqa: E731
    return min(fitting, key=by_traffic, default=None)


def _wide(sum_size: int) -> int:
    """Elements of capacity that the widened form of an element takes; 0 where nothing is widened."""
    return sum_size if sum_size > 1 else 0


def _ceil(extent: int, tile: int) -> int:
    return math.ceil(extent / tile)
