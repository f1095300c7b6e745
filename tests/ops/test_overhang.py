"""Windows that hang over the end of the data (ceil_mode): how many there are, of any extent."""

from __future__ import annotations

import itertools

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import bind, symbol
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.ops.window.window import conv_extent


def test_windows_begin_in_the_data_whatever_the_stride_is() -> None:
    pads = ((0, 0), (1, 0), (0, 1), (1, 1))
    for kernel, stride, dilation, pad in itertools.product((1, 2, 3), (1, 2, 3, 5), (1, 2), pads):
        span, (before, after) = (kernel - 1) * dilation + 1, pad
        if max(pad) >= span:
            continue
        op = MaxPool((kernel,), (stride,), pad, (dilation,), True)
        open_ = conv_extent(op, symbol("n"), kernel, stride, before, after, dilation, True)
        for extent in range(1, 12):
            # PyTorch: rounded up, less the last if that begins behind the data.
            count = -(-(extent + before + after - span) // stride) + 1
            if (count - 1) * stride >= extent + before:
                count -= 1
            try:
                fixed = conv_extent(op, extent, kernel, stride, before, after, dilation, True)
            except TypeRuleError:
                assert extent + before + after - span + stride - 1 < 0
                continue

            assert fixed == count == bind(open_, {"n": extent})
