"""Examples: views, creation, joining and splitting, repeats, scans, sorts, transforms."""

from __future__ import annotations

import torch

from spyre_fx.analysis.examples.make import cplx, f, of

aten = torch.ops.aten
prims = torch.ops.prims

_CPU = torch.device("cpu")

EXAMPLES = (
    # views
    *of(aten.view.default, aten._unsafe_view.default, aten.reshape.default, f(6, 4), [2, 3, 4]),
    *of(aten.view_copy.default, aten._reshape_copy.default, f(6, 4), [2, 12]),
    *of(aten.view.default, f(6, 4), [4, 6]),
    *of(aten._reshape_alias.default, f(6, 4), [2, 3, 4], [12, 4, 1]),
    *of(aten.flatten.using_ints, aten.ravel.default, f(2, 3, 4)),
    *of(aten.unflatten.int, f(6, 4), 0, [2, 3]),
    *of(aten.squeeze.default, aten.squeeze_copy.default, f(1, 4, 1, 6)),
    *of(aten.squeeze.dim, aten.squeeze_copy.dim, f(1, 4, 1, 6), 0),
    *of(aten.squeeze.dims, aten.squeeze_copy.dims, f(1, 4, 1, 6), [0, 1]),
    *of(aten.unsqueeze.default, aten.unsqueeze_copy.default, f(4, 6), 1),
    *of(aten.permute.default, aten.permute_copy.default, f(2, 4, 6), [2, 0, -2]),
    *of(aten.t.default, aten.t_copy.default, aten.numpy_T.default, f(4, 6)),
    *of(aten.transpose.int, aten.transpose_copy.int, aten.movedim.int, f(2, 4, 6), 0, -1),
    *of(aten.movedim.intlist, f(2, 4, 6), [0, 1], [1, 2]),
    *of(aten.expand.default, aten.expand_copy.default, aten.broadcast_to.default, f(4, 1), [3, 4, 6]),
    *of(aten.select.int, aten.select_copy.int, f(4, 6), 1, -2),
    *of(aten.slice.Tensor, aten.slice_copy.Tensor, f(4, 6), 1, 1, 9, 2),
    *of(aten.narrow.default, aten.narrow_copy.default, f(4, 6), 1, 1, 4),
    *of(aten.view.dtype, f(4, 6), torch.int16),
    *of(aten.view_as_real.default, aten.view_as_real_copy.default, cplx(4, 6)),
    *of(aten.view_as_complex.default, aten.view_as_complex_copy.default, f(4, 6, 2)),
    # creation
    *of(aten.full.default, [4, 6], 2.5),
    *of(aten.zeros.default, aten.ones.default, aten.empty.memory_format, [4, 6]),
    *of(aten.empty_strided.default, [4, 6], [1, 4]),
    *of(aten.empty_permuted.default, [4, 6], [1, 0]),
    *of(aten.scalar_tensor.default, 2.5),
    *of(prims.full.default, [4, 6], 2.5, dtype=torch.float32, device=_CPU, requires_grad=False),
    *of(aten.new_full.default, f(3), [4, 6], 2.5),
    *of(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default, f(3), [4, 6]),
    *of(aten.new_empty_strided.default, f(3), [4, 6], [1, 4]),
    *of(aten.arange.default, aten.eye.default, aten.hann_window.default, aten.hamming_window.default, 6),
    *of(aten.bartlett_window.default, aten.blackman_window.default, 6),
    *of(aten.arange.start, aten.eye.m, 2, 6),
    *of(aten.arange.start_step, 2, 12, 3),
    *of(aten.tril_indices.default, aten.triu_indices.default, 4, 6),
    *of(aten.linspace.default, aten.logspace.default, 0, 1, 6),
    *of(aten.linspace.Tensor_Tensor, aten.logspace.Tensor_Tensor, f(), f(), 6),
    *of(aten.linspace.Tensor_Scalar, aten.logspace.Tensor_Scalar, f(), 1, 6),
    *of(aten.linspace.Scalar_Tensor, aten.logspace.Scalar_Tensor, 0, f(), 6),
    *of(prims.iota.default, 6, start=0, step=1, dtype=torch.int64, device=_CPU, requires_grad=False),
    # joining and splitting
    *of(aten.cat.default, aten.concat.default, aten.concatenate.default, [f(4, 6), f(4, 3)], -1),
    *of(aten.stack.default, [f(4, 6), f(4, 6)], 1),
    *of(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor, f(4, 7), 3, 1),
    *of(aten.split.sizes, aten.split.default, aten.split_with_sizes.default, f(4, 7), [3, 4], 1),
    *of(aten.split_with_sizes_copy.default, aten.unsafe_split_with_sizes.default, f(4, 7), [3, 4], 1),
    *of(aten.chunk.default, aten.unsafe_chunk.default, aten.tensor_split.sections, f(4, 7), 3, 1),
    *of(aten.tensor_split.indices, f(4, 7), [3, 5], 1),
    *of(aten.unbind.int, aten.unbind_copy.int, f(4, 3), 1),
    # repeats
    *of(aten.repeat.default, f(4, 6), [2, 1, 3]),
    *of(aten.tile.default, f(4, 6), [3]),
    *of(aten.repeat_interleave.self_int, f(4, 6), 3, 1),
    # along dims
    *of(aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default, f(4, 6), 1),
    *of(aten.logcumsumexp.default, aten.sort.default, aten.argsort.default, aten.glu.default, f(4, 6), 1),
    *of(aten.sort.stable, aten.argsort.stable, f(4, 6), stable=True, dim=1),
    *of(aten.topk.default, f(4, 6), 2),
    *of(aten.msort.default, f(4, 6)),
    *of(aten.glu_backward.default, f(4, 3), f(4, 6), 1),
    *of(aten.flip.default, f(4, 6), [1]),
    *of(aten.roll.default, f(4, 6), [2], [1]),
    *of(aten.rot90.default, f(4, 6, 5), 1, [1, 2]),
    *of(aten.linalg_cross.default, f(4, 3), f(4, 3)),
    *of(aten.renorm.default, f(4, 6), 2, 0, 1.0),
    *of(aten._fft_c2c.default, cplx(4, 6), [1], 0, True),
    *of(aten._fft_r2c.default, f(4, 6), [1], 0, True),
    *of(aten._fft_c2r.default, cplx(4, 6), [1], 0, 10),
)
