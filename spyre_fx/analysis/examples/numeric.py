"""Examples: reductions, products, norms, softmax, losses, attention, linear algebra."""

from __future__ import annotations

import torch

from spyre_fx.analysis.examples.make import cplx, f, ints, mask, of, regular

aten = torch.ops.aten

_F32 = torch.float32

EXAMPLES = (
    # reductions
    *of(aten.sum.default, aten.mean.default, aten.prod.default, aten.max.default, aten.min.default, f(4, 6)),
    *of(aten.any.default, aten.all.default, aten.median.default, aten.nanmedian.default, f(4, 6)),
    *of(aten.count_nonzero.default, aten.hash_tensor.default, aten.norm.Scalar, f(4, 6)),
    *of(aten.var.default, aten.std.default, aten.var_mean.default, aten.std_mean.default, f(4, 6)),
    *of(aten.argmax.default, aten.argmin.default, f(4, 6), 1),
    *of(aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.nansum.default, f(4, 6), [1]),
    *of(aten.any.dims, aten.all.dims, aten.logsumexp.default, aten.count_nonzero.dim_IntList, f(4, 6), [1]),
    *of(aten.prod.dim_int, aten.any.dim, aten.all.dim, aten.max.dim, aten.min.dim, f(4, 6), 1, True),
    *of(aten.median.dim, aten.nanmedian.dim, aten.mode.default, f(4, 6), 1),
    *of(aten.kthvalue.default, f(4, 6), 2),
    *of(aten.aminmax.default, f(4, 6), dim=1),
    *of(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction, f(4, 6), [1]),
    *of(aten.var.dim, aten.std.dim, aten.var_mean.dim, aten.std_mean.dim, f(4, 6), [1], False),
    *of(aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, f(4, 6), 3, [1]),
    *of(aten.norm.ScalarOpt_dtype, f(4, 6), 2, dtype=torch.float64),
    *of(aten.norm.ScalarOpt_dim_dtype, f(4, 6), 2, [1], True, dtype=torch.float64),
    # matrix products
    *of(aten.mm.default, aten.matmul.default, f(4, 6), f(6, 5)),
    *of(aten._int_mm.default, ints(24, 8, below=5).of(torch.int8), ints(8, 16, below=5).of(torch.int8)),
    *of(aten.bmm.default, f(3, 4, 6), f(3, 6, 5)),
    *of(aten.matmul.default, f(3, 1, 4, 6), f(2, 6, 5)),
    *of(aten.mv.default, f(4, 6), f(6)),
    *of(aten.dot.default, f(6), f(6)),
    *of(aten.vdot.default, cplx(6), cplx(6)),
    *of(aten.outer.default, aten.ger.default, f(4), f(6)),
    *of(aten.addmm.default, aten._addmm_activation.default, f(5), f(4, 6), f(6, 5)),
    *of(aten.baddbmm.default, f(4, 1), f(3, 4, 6), f(3, 6, 5)),
    *of(aten.addbmm.default, f(4, 5), f(3, 4, 6), f(3, 6, 5)),
    *of(aten.addmv.default, f(4), f(4, 6), f(6)),
    *of(aten.addr.default, f(4, 6), f(4), f(6)),
    *of(aten.linear.default, f(2, 4, 6), f(5, 6), f(5)),
    *of(aten.mm.dtype, f(4, 6), f(6, 5), _F32),
    *of(aten.bmm.dtype, f(3, 4, 6), f(3, 6, 5), _F32),
    *of(aten.addmm.dtype, f(5), f(4, 6), f(6, 5), _F32),
    # softmax and norms
    *of(aten._softmax.default, aten._log_softmax.default, f(4, 6), 1, False),
    *of(aten.softmax.int, aten.log_softmax.int, aten._safe_softmax.default, f(4, 6), 1),
    *of(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default, f(4, 6), f(4, 6), 1, _F32),
    *of(aten._masked_softmax.default, f(4, 6), mask(4, 6), 1, 2),
    *of(aten._masked_softmax_backward.default, f(4, 6), f(4, 6), mask(4, 6), 1),
    *of(aten.native_layer_norm.default, f(2, 4, 6), [6], f(6), f(6), 1e-5),
    *of(aten.layer_norm.default, f(2, 4, 6), [4, 6], f(4, 6), f(4, 6)),
    *of(aten.rms_norm.default, aten._fused_rms_norm.default, f(2, 4, 6), [6], f(6), 1e-5),
    *of(
        aten.native_layer_norm_backward.default,
        *(f(4, 6), f(4, 6), [6], f(4, 1), f(4, 1), f(6), f(6), [True, False, False]),
    ),
    *of(aten._fused_rms_norm_backward.default, f(4, 6), f(4, 6), [6], f(4, 1), f(6), [True, True]),
    *of(aten._native_batch_norm_legit_no_training.default, f(2, 4, 5), f(4), f(4), f(4), f(4), 0.1, 1e-5),
    *of(aten._batch_norm_no_update.default, f(2, 4, 5), f(4), f(4), f(4), f(4), 0.1, 1e-5),
    *of(aten._batch_norm_with_update_functional.default, f(2, 4, 5), f(4), f(4), f(4), f(4), 0.1, 1e-5),
    *of(aten._native_batch_norm_legit.no_stats, f(2, 4, 5), f(4), f(4), True, 0.1, 1e-5),
    *of(aten._native_batch_norm_legit_functional.default, f(2, 4, 5), f(4), f(4), f(4), f(4), True, 0.1, 1e-5),
    *of(aten.native_batch_norm.default, f(2, 4, 5), f(4), f(4), f(4), f(4), False, 0.1, 1e-5),
    *of(
        aten.native_batch_norm_backward.default,
        *(f(2, 4, 5), f(2, 4, 5), f(4), f(4), f(4), f(4), f(4), True, 1e-5, [True, True, True]),
    ),
    *of(
        aten.batch_norm_backward.default,
        *(f(2, 4, 5), f(2, 4, 5), f(4), f(4), f(4), f(4), f(4), True, 1e-5, [True, True, True], f(0)),
    ),
    *of(aten.native_group_norm.default, f(3, 6, 5), f(6), f(6), 3, 6, 5, 2, 1e-5),
    *of(
        aten.native_group_norm_backward.default,
        *(f(3, 6, 5), f(3, 6, 5), f(3, 2), f(3, 2), f(6), 3, 6, 5, 2, [True, False, False]),
    ),
    # losses
    *of(aten.mse_loss.default, aten.smooth_l1_loss.default, aten.huber_loss.default, f(4, 6), f(4, 6), 0),
    *of(aten.soft_margin_loss.default, f(4, 6), f(4, 6), 0),
    *of(aten.binary_cross_entropy.default, mask(4, 6).of(_F32), mask(4, 6).of(_F32), f(6), 0),
    *of(aten.binary_cross_entropy_with_logits.default, f(4, 6), f(4, 6), f(6), f(6), 0),
    *of(aten.mse_loss_backward.default, aten.soft_margin_loss_backward.default, f(), f(4, 6), f(4, 6), 2),
    *of(aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default, f(4, 6), f(4, 6), f(4, 6), 0, 1.0),
    *of(aten.binary_cross_entropy_backward.default, f(4, 6), f(4, 6), mask(4, 6).of(_F32), None, 0),
    *of(aten.nll_loss_forward.default, f(4, 6), ints(4, below=6), f(6), 0, -100),
    *of(aten.nll_loss2d_forward.default, f(4, 6, 2, 3), ints(4, 2, 3, below=6), f(6), 0, -100),
    *of(aten.nll_loss_backward.default, f(), f(4, 6), ints(4, below=6), f(6), 1, -100, f()),
    *of(aten.nll_loss2d_backward.default, f(), f(4, 6, 2, 3), ints(4, 2, 3, below=6), f(6), 1, -100, f()),
    *of(aten.multi_margin_loss.default, f(4, 6), ints(4, below=6), 1, 1, f(6), 0),
    *of(aten.multi_margin_loss_backward.default, f(4), f(4, 6), ints(4, below=6), 1, 1, f(6), 0),
    *of(aten.multilabel_margin_loss_forward.default, f(4, 6), ints(4, 6, below=6), 0),
    *of(aten.multilabel_margin_loss_backward.default, f(4), f(4, 6), ints(4, 6, below=6), 0, mask(4, 6).of(_F32)),
    # attention
    *of(aten.scaled_dot_product_attention.default, f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 8), f(4, 5)),
    *of(
        aten.scaled_dot_product_attention.default,
        *(f(2, 6, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 8)),
        is_causal=True,
        enable_gqa=True,
    ),
    *of(aten._scaled_dot_product_attention_math.default, f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 8), f(4, 5)),
    *of(
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        *(f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 8)),
        attn_mask=f(2, 1, 4, 5),
    ),
    *of(
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        *(f(2, 3, 4, 8), f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 8), f(2, 3, 4, 8), f(2, 3, 4), 0.0, False),
    ),
    # linear algebra
    *of(aten.cholesky.default, aten.cholesky_inverse.default, aten.linalg_lu.default, regular(3, 4, 4)),
    *of(aten.linalg_matrix_exp.default, aten.linalg_qr.default, aten.geqrf.default, regular(3, 4, 4)),
    *of(
        aten.linalg_cholesky_ex.default, aten.linalg_inv_ex.default, aten.linalg_lu_factor_ex.default, regular(3, 4, 4)
    ),
    *of(aten.linalg_ldl_factor_ex.default, aten._linalg_eigh.default, aten.linalg_eig.default, regular(3, 4, 4)),
    *of(aten.linalg_eigvals.default, aten._linalg_eigvals.default, aten._linalg_svd.default, regular(3, 4, 4)),
    *of(aten._linalg_det.default, aten._linalg_slogdet.default, regular(3, 4, 4)),
    *of(aten.tril.default, aten.triu.default, f(3, 4, 5)),
    *of(aten.cholesky_solve.default, aten.triangular_solve.default, f(3, 4, 2), regular(3, 4, 4)),
    *of(aten._cholesky_solve_helper.default, f(3, 4, 2), regular(3, 4, 4), False),
    *of(aten.linalg_solve_triangular.default, regular(3, 4, 4), f(3, 4, 2), upper=True),
    *of(aten._linalg_solve_ex.default, regular(3, 4, 4), f(3, 4)),
    *of(aten.linalg_pinv.atol_rtol_tensor, regular(3, 4, 4), atol=f(3), rtol=f(3)),
    *of(aten.linalg_householder_product.default, f(3, 4, 2), f(3, 2)),
    *of(aten.lu_unpack.default, regular(3, 4, 4), ints(3, 4, below=1).of(torch.int32, plus=1)),
    *of(
        aten.linalg_lu_solve.default,
        aten.linalg_ldl_solve.default,
        *(regular(3, 4, 4), ints(3, 4, below=1).of(torch.int32, plus=1), f(3, 4, 2)),
    ),
    *of(aten.ormqr.default, f(3, 4, 4), f(3, 4), f(3, 4, 2)),
    *of(aten._cdist_forward.default, f(3, 4, 6), f(3, 5, 6), 2.0, None),
    *of(aten._cdist_backward.default, f(3, 4, 5), f(3, 4, 6), f(3, 5, 6), 2.0, f(3, 4, 5)),
)
