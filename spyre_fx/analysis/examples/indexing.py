"""Examples: reading and writing at indices, diagonals, windows, gradients of views."""

from __future__ import annotations

import torch

from spyre_fx.analysis.examples.make import f, ints, mask, of

aten = torch.ops.aten

EXAMPLES = (
    # lookup
    *of(aten.embedding.default, f(10, 6), ints(3, 4, below=10)),
    *of(aten.index_select.default, f(4, 6), 1, ints(5, below=6)),
    *of(aten.gather.default, f(4, 6), 1, ints(4, 3, below=6)),
    *of(aten.take.default, f(4, 6), ints(3, 5, below=24)),
    *of(aten.index.Tensor, aten._unsafe_index.Tensor, f(5, 4, 6), [None, ints(3, below=4), ints(3, below=6)]),
    *of(aten.index.Tensor, f(5, 4, 6), [ints(3, 1, below=5), None, ints(2, below=6)]),
    *of(aten._unsafe_masked_index.default, f(5, 6), mask(3, 4), [ints(3, 1, below=5), ints(4, below=6)], 0.0),
    *of(aten.bucketize.Tensor, aten.isin.Tensor_Tensor, f(4, 6), f(5)),
    *of(aten.isin.Tensor_Scalar, f(4, 6), 1.0),
    *of(aten.searchsorted.Tensor, f(4, 6), f(4, 3)),
    # scatter
    *of(aten.scatter.src, aten.scatter_add.default, f(4, 6), 1, ints(4, 3, below=6), f(4, 3)),
    *of(aten.scatter.value, f(4, 6), 1, ints(4, 3, below=6), 2.0),
    *of(aten.scatter.reduce, f(4, 6), 1, ints(4, 3, below=6), f(4, 3), reduce="add"),
    *of(aten.scatter.value_reduce, f(4, 6), 1, ints(4, 3, below=6), 2.0, reduce="multiply"),
    *of(aten.scatter_reduce.two, f(4, 6), 1, ints(4, 3, below=6), f(4, 3), "amax"),
    *of(aten.index_add.default, aten.index_copy.default, f(4, 6), 1, ints(3, below=6), f(4, 3)),
    *of(aten.index_reduce.default, f(4, 6), 1, ints(3, below=6), f(4, 3), "amax"),
    *of(aten.index_fill.int_Scalar, f(4, 6), 1, ints(3, below=6), 2.0),
    *of(aten.index_fill.int_Tensor, f(4, 6), 1, ints(3, below=6), f()),
    *of(aten.index_put.default, aten._unsafe_index_put.default, f(4, 6, 5), [None, ints(3, below=6)], f(4, 3, 5)),
    *of(aten.index_put.default, f(4, 6, 5), [mask(4, 6)], f()),
    *of(aten.embedding_dense_backward.default, f(3, 4, 6), ints(3, 4, below=10), 10, -1, False),
    *of(aten.masked_scatter.default, f(4, 6), mask(4, 6), f(24)),
    *of(aten.put.default, f(4, 6), ints(3, below=24), f(3)),
    *of(
        aten._unsafe_masked_index_put_accumulate.default,
        *(f(5, 6), mask(3, 4), [ints(3, 1, below=5), ints(4, below=6)], f(3, 4)),
    ),
    # diagonals, windows, gradients of views
    *of(aten.diagonal.default, aten.diagonal_copy.default, f(4, 6, 5), 0, 0, 2),
    *of(aten.diag_embed.default, f(4, 6)),
    *of(aten.diagonal_backward.default, f(6, 4), [4, 6, 5], 0, 0, 2),
    *of(aten.diagonal_scatter.default, f(4, 6, 5), f(6, 4), 0, 0, 2),
    *of(aten.trace.default, f(4, 6)),
    *of(aten.unfold.default, aten.unfold_copy.default, f(4, 6), 1, 3, 2),
    *of(aten.unfold_backward.default, f(4, 2, 3), [4, 6], 1, 3, 2),
    *of(aten.select_scatter.default, f(4, 6), f(4), 1, 2),
    *of(aten.select_backward.default, f(4), [4, 6], 1, 2),
    *of(aten.slice_scatter.default, f(4, 6), f(4, 2), 1, 1, 3),
    *of(aten.slice_backward.default, f(4, 2), [4, 6], 1, 1, 3, 1),
)
