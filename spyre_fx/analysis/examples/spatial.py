"""Examples: convolution, pooling, padding, upsampling, and other ops on images."""

from __future__ import annotations

import torch

from spyre_fx.analysis.examples.make import f, ints, of

aten = torch.ops.aten

_IMAGE = f(2, 3, 8, 8)
_HALF = f(2, 3, 4, 4)

EXAMPLES = (
    # convolution
    *of(aten.convolution.default, _IMAGE, f(4, 3, 3, 3), f(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    *of(aten.convolution.default, f(2, 6, 8), f(9, 2, 1), f(9), [1], [0], [1], False, [0], 3),
    *of(aten.convolution.default, f(2, 4, 5), f(4, 3, 3), None, [2], [1], [1], True, [1], 2),
    *of(aten.conv1d.default, f(2, 3, 8), f(4, 3, 3), f(4)),
    *of(aten.conv2d.default, _IMAGE, f(4, 3, 3, 3), f(4), [2], [1]),
    *of(aten.conv3d.default, f(2, 3, 4, 4, 4), f(4, 3, 2, 2, 2)),
    *of(
        aten.convolution_backward.default,
        *(f(2, 4, 8, 8), _IMAGE, f(4, 3, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]),
    ),
    *of(
        aten.convolution_backward.default,
        *(f(2, 6, 8), f(2, 4, 8), f(6, 2, 3), [6], [1], [1], [1], False, [0], 2, [True, True, True]),
    ),
    # pooling
    *of(
        aten._adaptive_avg_pool2d.default,
        aten.adaptive_avg_pool2d.default,
        aten.adaptive_max_pool2d.default,
        _IMAGE,
        [3, 3],
    ),
    *of(aten._adaptive_avg_pool3d.default, aten.adaptive_max_pool3d.default, f(2, 3, 4, 4, 4), [2, 2, 2]),
    *of(aten.adaptive_avg_pool1d.default, f(2, 3, 8), [3]),
    *of(aten.avg_pool1d.default, f(2, 3, 8), [2]),
    *of(aten.avg_pool2d.default, aten.max_pool2d.default, aten.max_pool2d_with_indices.default, _IMAGE, [3, 3], [2, 2]),
    *of(aten.avg_pool3d.default, aten.max_pool3d_with_indices.default, f(2, 3, 4, 4, 4), [2, 2, 2]),
    *of(aten._adaptive_avg_pool2d_backward.default, _HALF, _IMAGE),
    *of(aten._adaptive_avg_pool3d_backward.default, f(2, 3, 2, 2, 2), f(2, 3, 4, 4, 4)),
    *of(aten.adaptive_max_pool2d_backward.default, _HALF, _IMAGE, ints(2, 3, 4, 4, below=64)),
    *of(aten.adaptive_max_pool3d_backward.default, f(2, 3, 2, 2, 2), f(2, 3, 4, 4, 4), ints(2, 3, 2, 2, 2, below=64)),
    *of(aten.avg_pool2d_backward.default, _HALF, _IMAGE, [2, 2], [2, 2], [0, 0], False, True, None),
    *of(
        aten.avg_pool3d_backward.default,
        *(f(2, 3, 2, 2, 2), f(2, 3, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, False, True, None),
    ),
    *of(
        aten.max_pool2d_with_indices_backward.default,
        *(_HALF, _IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, ints(2, 3, 4, 4, below=64)),
    ),
    *of(
        aten.max_pool3d_with_indices_backward.default,
        *(f(2, 3, 2, 2, 2), f(2, 3, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, ints(2, 3, 2, 2, 2, below=64)),
    ),
    *of(aten.max_unpool2d.default, f(2, 3, 1, 1), ints(2, 3, 1, 1, below=16), [4, 4]),
    *of(
        aten.max_unpool3d.default,
        *(f(2, 3, 1, 1, 1), ints(2, 3, 1, 1, 1, below=1), [2, 2, 2], [2, 2, 2], [0, 0, 0]),
    ),
    *of(aten.fractional_max_pool2d.default, _IMAGE, [2, 2], [3, 3], f(2, 3, 2).less()),
    *of(aten.fractional_max_pool3d.default, f(2, 3, 4, 4, 4), [2] * 3, [2] * 3, f(2, 3, 3).less()),
    *of(aten.fractional_max_pool2d_backward.default, f(2, 3, 3, 3), _IMAGE, [2, 2], [3, 3], ints(2, 3, 3, 3, below=64)),
    *of(
        aten.fractional_max_pool3d_backward.default,
        *(f(2, 3, 2, 2, 2), f(2, 3, 4, 4, 4), [2] * 3, [2] * 3, ints(2, 3, 2, 2, 2, below=64)),
    ),
    # padding
    *of(aten.constant_pad_nd.default, aten.pad.default, f(2, 3, 8), [1, 2]),
    *of(aten.reflection_pad1d.default, aten.replication_pad1d.default, f(2, 3, 8), [1, 2]),
    *of(aten.reflection_pad2d.default, aten.replication_pad2d.default, _IMAGE, [1, 2, 0, 1]),
    *of(aten.reflection_pad3d.default, aten.replication_pad3d.default, f(2, 3, 4, 4, 4), [1] * 6),
    *of(
        aten.reflection_pad1d_backward.default, aten.replication_pad1d_backward.default, f(2, 3, 11), f(2, 3, 8), [1, 2]
    ),
    *of(
        aten.reflection_pad2d_backward.default,
        aten.replication_pad2d_backward.default,
        *(f(2, 3, 9, 11), _IMAGE, [1, 2, 0, 1]),
    ),
    *of(
        aten.reflection_pad3d_backward.default,
        aten.replication_pad3d_backward.default,
        *(f(2, 3, 6, 6, 6), f(2, 3, 4, 4, 4), [1] * 6),
    ),
    # upsampling
    *of(aten.upsample_nearest1d.default, aten._upsample_nearest_exact1d.default, f(2, 3, 4), [8]),
    *of(aten.upsample_linear1d.default, f(2, 3, 4), [8], False),
    *of(aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default, _HALF, [8, 8]),
    *of(aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default, _HALF, [8, 8], False),
    *of(aten._upsample_bilinear2d_aa.default, aten._upsample_bicubic2d_aa.default, _HALF, [8, 8], False),
    *of(aten.upsample_nearest2d.vec, _HALF, [8, 8], None),
    *of(aten.upsample_bilinear2d.vec, _HALF, [8, 8], False, None),
    *of(aten.upsample_nearest3d.default, aten._upsample_nearest_exact3d.default, f(2, 3, 2, 2, 2), [4, 4, 4]),
    *of(aten.upsample_trilinear3d.default, f(2, 3, 2, 2, 2), [4, 4, 4], False),
    *of(
        aten.upsample_nearest1d_backward.default,
        aten._upsample_nearest_exact1d_backward.default,
        *(f(2, 3, 8), [8], [2, 3, 4]),
    ),
    *of(aten.upsample_linear1d_backward.default, f(2, 3, 8), [8], [2, 3, 4], False),
    *of(
        aten.upsample_nearest2d_backward.default,
        aten._upsample_nearest_exact2d_backward.default,
        *(_IMAGE, [8, 8], [2, 3, 4, 4]),
    ),
    *of(
        aten.upsample_bilinear2d_backward.default,
        aten.upsample_bicubic2d_backward.default,
        aten._upsample_bilinear2d_aa_backward.default,
        aten._upsample_bicubic2d_aa_backward.default,
        *(_IMAGE, [8, 8], [2, 3, 4, 4], False),
    ),
    *of(
        aten.upsample_nearest3d_backward.default,
        aten._upsample_nearest_exact3d_backward.default,
        *(f(2, 3, 4, 4, 4), [4, 4, 4], [2, 3, 2, 2, 2]),
    ),
    *of(aten.upsample_trilinear3d_backward.default, f(2, 3, 4, 4, 4), [4, 4, 4], [2, 3, 2, 2, 2], False),
    # columns, pixels, grids
    *of(aten.im2col.default, _IMAGE, [3, 3], [1, 1], [1, 1], [1, 1]),
    *of(aten.col2im.default, f(2, 27, 64), [8, 8], [3, 3], [1, 1], [1, 1], [1, 1]),
    *of(aten.pixel_shuffle.default, f(2, 12, 4, 4), 2),
    *of(aten.pixel_unshuffle.default, _IMAGE, 2),
    *of(aten.channel_shuffle.default, aten.native_channel_shuffle.default, f(2, 6, 4), 3),
    *of(aten.grid_sampler_2d.default, _IMAGE, f(2, 4, 5, 2), 0, 0, False),
    *of(aten.grid_sampler_3d.default, f(2, 3, 4, 4, 4), f(2, 2, 4, 5, 3), 0, 0, False),
    *of(aten.grid_sampler_2d_backward.default, f(2, 3, 4, 5), _IMAGE, f(2, 4, 5, 2), 0, 0, False, [True, True]),
    *of(
        aten.grid_sampler_3d_backward.default,
        *(f(2, 3, 2, 4, 5), f(2, 3, 4, 4, 4), f(2, 2, 4, 5, 3), 0, 0, False, [True, True]),
    ),
    *of(aten.affine_grid_generator.default, f(3, 2, 3), [3, 1, 4, 5], False),
)
