"""Dense linear algebra on batches of matrices: the batch may be cut, a matrix may not."""

from __future__ import annotations

import torch

from spyre_fx.analysis.iteration import IterationSpace, OpCall, SpaceBuilder
from spyre_fx.analysis.rules.shapes import Dims, batched, broadcast
from spyre_fx.analysis.rules.table import Rule, rule
from spyre_fx.analysis.sizes import known, same, same_shape

aten = torch.ops.aten

# core dims of the operands and results (see ``batched``) -> ops
_MATRICES = {
    "2->2": (
        aten.cholesky.default,
        aten.cholesky_inverse.default,
        aten.cholesky_solve.default,
        aten._cholesky_solve_helper.default,
        aten.linalg_lu.default,
        aten.linalg_matrix_exp.default,
        aten.linalg_qr.default,
        aten.linalg_solve_triangular.default,
        aten.tril.default,
        aten.triangular_solve.default,
        aten.triu.default,
    ),
    "2,0->2": (aten.linalg_pinv.atol_rtol_tensor,),
    "2->2,0": (aten.linalg_cholesky_ex.default, aten.linalg_inv_ex.default),
    "2->2,1": (aten.geqrf.default,),
    "2->2,1,0": (aten.linalg_ldl_factor_ex.default, aten.linalg_lu_factor_ex.default),
    "2->1,2": (aten._linalg_eigh.default, aten.linalg_eig.default),
    "2->1": (aten.linalg_eigvals.default, aten._linalg_eigvals.default),
    "2->2,1,2": (aten._linalg_svd.default,),
    "2->0,2,1": (aten._linalg_det.default,),
    "2->0,0,2,1": (aten._linalg_slogdet.default,),
    "2,1->2": (aten.linalg_householder_product.default, aten.lu_unpack.default),
    "2,1,2->2": (aten.linalg_ldl_solve.default, aten.linalg_lu_solve.default, aten.ormqr.default),
}


def _matrices(cores: str) -> Rule:
    def matrices(call: OpCall) -> IterationSpace | None:
        return batched(call, cores)

    return matrices


for _cores, _ops in _MATRICES.items():
    rule(*_ops)(_matrices(_cores))


@rule(aten._linalg_solve_ex.default)
def solve(call: OpCall) -> IterationSpace | None:
    """The right-hand sides are vectors if they have the shape of a row of ``A``, else matrices."""
    a, right = call.operands
    vectors = right.dim() == 1 or same_shape(right.shape, a.shape[:-1])
    return batched(call, "2,1->1,2,1,0" if vectors else "2,2->2,2,1,0")


@rule(aten._cdist_forward.default)
def cdist(call: OpCall) -> IterationSpace | None:
    """Euclidean distances of more than 25 points go through a matmul, less exact, that depends on their number."""
    x, y = call.operands
    (result,) = call.results
    b = SpaceBuilder()
    few = known(x.shape[-2] <= 25) and known(y.shape[-2] <= 25)
    exact = few or call.argument("p") != 2 or call.argument("compute_mode") == 2
    batch = [b.axis(size) for size in result.shape[:-2]]
    rows, columns = (b.axis(size) if exact else b.sequential(size) for size in result.shape[-2:])
    features = b.reduction(x.shape[-1], "")
    maps: list[Dims] = []
    for tensor, points in ((x, rows), (y, columns)):
        leading = broadcast(tensor.shape[:-2], batch, result.shape[:-2])
        if leading is None:
            return None
        maps.append([*leading, points, features])
    return b.build(maps, [[*batch, rows, columns]])


@rule(aten._cdist_backward.default)
def cdist_backward(call: OpCall) -> IterationSpace | None:
    """The gradient of each point of the first set sums over the points of the second."""
    grad, x, y, distances = call.operands
    (result,) = call.results
    if not same_shape(x.shape, result.shape) or not same_shape(grad.shape, distances.shape):
        return None
    if not all(same_shape(tensor.shape[:-2], x.shape[:-2]) for tensor in (y, grad)) or not same(y.dim(), x.dim()):
        return None
    b = SpaceBuilder()
    batch = [b.axis(size) for size in x.shape[:-2]]
    rows, columns, features = b.axis(x.shape[-2]), b.reduction(y.shape[-2], "sum"), b.axis(x.shape[-1])
    pairs, points = [*batch, rows, columns], [*batch, rows, features]
    return b.build([pairs, points, [*batch, columns, features], pairs], [points])
