"""What no schedule can beat: least traffic between main memory and a scratchpad, in elements loaded and stored.

Multiply by the element size for bytes. ``capacity`` is the scratchpad's in elements. Each bound holds for every order
of the work and every choice of what is kept; none is a promise that some schedule reaches it.
"""

from __future__ import annotations

import math


def compulsory(*tensors: tuple[int, ...]) -> int:
    """Every input is read and every output written at least once: the elements of all of them."""
    return sum(math.prod(shape) for shape in tensors)


def matmul(m: int, n: int, k: int, capacity: int) -> float:
    """``max(MK + KN + MN, 2 MNK / sqrt(s) - 2 s)`` for ``C[M, N] = A[M, K] B[K, N]``.

    The second term is the bound of Smith, Lowery, Langou and van de Geijn (2017, arXiv:1702.02017) on the loads of
    ``C += A B``; not reading C saves MN, writing it costs MN. The often quoted ``2 MNK / sqrt(s) + MN`` is no bound for
    K below about sqrt(s): M = 4096, N = 16000, K = 256 with a resident 2048 x K panel moves less.
    """
    return max(compulsory((m, k), (k, n), (m, n)), 2 * m * n * k / math.sqrt(capacity) - 2 * capacity)


def mlp(rows: int, width: int, hidden: int, out: int) -> int:
    """``act(X[M, D] W1[D, H]) W2[H, O]``: compulsory, since the hidden values need never leave the scratchpad."""
    return compulsory((rows, width), (width, hidden), (hidden, out), (rows, out))


def linear_cross_entropy(rows: int, width: int, classes: int) -> int:
    """Losses of ``X[B, D] W[V, D]^T`` against one target a row: compulsory, without the logits."""
    return compulsory((rows, width), (classes, width), (rows,), (rows,))


def attention(queries: int, keys: int, depth: int) -> int:
    """One head of ``softmax(Q K^T) V``: compulsory.

    For scratchpads of at least depth**2 elements the traffic grows as ``Nq Nk d^2 / s`` (upper bound: Dao et al. 2022,
    arXiv:2205.14135; lower bound: Saha and Ye 2024, arXiv:2402.07443). The constant of the lower bound is not known, so
    it cannot be used as a number.
    """
    return compulsory(*[(queries, depth)] * 2, *[(keys, depth)] * 2)


def rows(count: int, length: int) -> int:
    """Softmax or a norm over ``count`` rows of ``length``: read once, written once."""
    return compulsory((count, length), (count, length))
