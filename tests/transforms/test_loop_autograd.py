"""Gradients of loops equal those of the untiled program, and keep no more than the arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import spyre_fx
from spyre_fx.errors import TilingError
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.gradients.additive import sums_only
from spyre_fx.transforms.loop_types import Assembled, Carried, Last, Leaves, Slice
from tests.transforms.loop_cases import loop_of, rows
from tests.transforms.test_counted_loop import online_softmax
from tests.transforms.test_executor import Storages, matmul_over_k

F64 = {"dtype": torch.float64, "requires_grad": True}


def check(loop: CountedLoop, args: tuple[Any, ...], second: bool = True) -> None:
    assert gradcheck(loop, args, fast_mode=True)
    if second:
        assert gradgradcheck(loop, args, fast_mode=True)


@pytest.mark.parametrize("tile", [2, 3, 5])
def test_rows_with_a_weight(tile: int) -> None:
    x, w = torch.randn(5, 2, **F64), torch.randn(2, 3, **F64)
    check(rows(lambda x, w: torch.softmax(x @ w, -1).tanh(), (x, w), [0, None], 0, tile), (x, w), second=tile == 3)


def test_columns_with_other_strides() -> None:
    x, y = torch.randn(3, 6, **F64), torch.randn(3, 6, **F64)
    loop = rows(lambda x, y: (x * y).t().sigmoid(), (x, y), [1, 1], 0, 4)
    check(loop, (x, y))
    assert loop(x.t().contiguous().t(), y).stride() == (1, 6)


def test_only_some_arguments_need_a_gradient() -> None:
    x, w, n = torch.randn(6, 4), torch.randn(4, 3, requires_grad=True), torch.randint(0, 3, (6,))
    loop = rows(lambda x, w, n: (x @ w).gather(1, n[:, None]), (x, w, n), [0, None, 0], 0, 4)
    (got,) = torch.autograd.grad(loop(x, w, n).sum(), w)
    (want,) = torch.autograd.grad((x @ w).gather(1, n[:, None]).sum(), w)
    torch.testing.assert_close(got, want)


def test_what_eager_would_not_connect_requires_no_gradient() -> None:
    """A running sum of detached rows, beside one of rows; an argument alone decides for what is made from it alone."""

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = x @ w
        return h.relu(), h.detach() * 2, (h > 0).to(h.dtype), h.detach().sum(0), h.sum(0), w.exp()

    x, w = torch.randn(6, 4, **F64), torch.randn(4, 3, **F64)
    gm = spyre_fx.capture(fn, x, w)
    ops = [node for node in gm.graph.nodes if node.op == "call_function" and node.name != "exp"]
    for form in (2, 4, [(2, [0]), (3, [1])]):
        tiled = spyre_fx.tile(gm, [(ops, form)])
        assert tiled.graph.find_nodes(op="call_module")
        for args in ((x, w), (x.detach(), w), (x, w.detach())):
            found, wanted = tiled(*args), fn(*args)
            assert [value.requires_grad for value in found] == [value.requires_grad for value in wanted]
            torch.testing.assert_close(found, wanted)
        for way in ("eager", "aot_eager"):
            compiled = torch.compile(tiled, backend=way)(x, w)
            assert [value.requires_grad for value in compiled] == [True, False, False, False, True, True]
        found, wanted = (sum(values[i].square().sum() for i in (0, 4)) for values in (tiled(x, w), fn(x, w)))
        torch.testing.assert_close(torch.autograd.grad(found, (x, w)), torch.autograd.grad(wanted, (x, w)))


def test_results_that_have_no_gradient() -> None:
    x = torch.randn(6, 4, **F64)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        values, places = (x * x).max(1)
        return values, places

    loop = loop_of(fn, (x,), [Slice(0, (6,))], [Assembled(Slice(0, (6,)))] * 2, fn(x), 4)
    values, places = loop(x)
    assert values.requires_grad and not places.requires_grad
    check(loop, (x,))


def test_a_result_that_is_not_used() -> None:
    x = torch.randn(6, 4, **F64)

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.exp(), x * x

    loop = loop_of(fn, (x,), [Slice(0, (6,))], [Assembled(Slice(0, (6,)))] * 2, fn(x), 4)
    (got,) = torch.autograd.grad(loop(x)[1].sum(), x)
    torch.testing.assert_close(got, 2 * x)


def sum_loop(x: Tensor, acc: Tensor, tile: int) -> CountedLoop:
    cuts = [Slice(0, (x.shape[0],)), None]
    return loop_of(lambda x, acc: (acc + (x * x).sum(0),), (x, acc), cuts, [Carried(1)], [acc], tile)


def test_a_sum() -> None:
    x, acc = torch.randn(7, 3, **F64), torch.randn(3, **F64)
    loop = sum_loop(x, acc, 3)
    assert sums_only(loop)
    check(loop, (x, acc))


def test_a_sum_whose_first_value_needs_no_gradient() -> None:
    x, acc = torch.randn(7, 3, **F64), torch.randn(3, dtype=torch.float64)
    check(sum_loop(x, acc, 3), (x, acc))


def test_a_product_of_matrices_over_its_reduction_axis() -> None:
    a, b, acc = torch.randn(3, 8, **F64), torch.randn(8, 4, **F64), torch.randn(3, 4, **F64)
    cuts = [Slice(1, (8,)), Slice(0, (8,)), None]
    check(loop_of(lambda a, b, acc: (acc + a @ b,), (a, b, acc), cuts, [Carried(2)], [acc], 3), (a, b, acc))


def test_reduction_inside_rows_and_rows_inside_a_reduction() -> None:
    a, b, acc = torch.randn(5, 6, **F64), torch.randn(6, 3, **F64), torch.randn(5, 3, **F64)
    inside = rows(lambda a, b, acc: matmul_over_k(a, b, acc, 4), (a, b, acc), [0, None, 0], 0, 2)

    def fn(a: Tensor, b: Tensor, acc: Tensor) -> tuple[Tensor, ...]:
        return (rows(lambda a, b, acc: acc + a @ b, (a, b, acc), [0, None, 0], 0, 2)(a, b, acc),)

    outside = loop_of(fn, (a, b, acc), [Slice(1, (6,)), Slice(0, (6,)), None], [Carried(2)], [acc], 4)
    for loop in (inside, outside):
        assert sums_only(loop)
        check(loop, (a, b, acc))


def test_a_nest_of_rows_and_columns() -> None:
    x, w = torch.randn(5, 6, **F64), torch.randn(6, **F64)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return rows(lambda x, w: (x * w).tanh(), (x, w), [1, 0], 1, 4)(x, w) * 2

    check(rows(fn, (x, w), [0, None], 0, 2), (x, w))


def test_one_factor_of_a_dim() -> None:
    x = torch.randn(2, 12, **F64)
    cut = Slice(1, (2, 3, 2), 1)
    check(loop_of(lambda x: (x.exp() * x,), (x,), [cut], [Assembled(cut)], [x], 2), (x,))


def test_the_value_of_the_last_trip() -> None:
    x, w = torch.randn(6, 2, **F64), torch.randn(3, **F64)

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x * w.sum(), w.exp()

    results: list[Leaves] = [Assembled(Slice(0, (6,))), Last()]
    for tile in (2, 4, 6):
        check(loop_of(fn, (x, w), [Slice(0, (6,)), None], results, (x, w), tile), (x, w))


def running(fn: Any, x: Tensor, start: Tensor, tile: int) -> CountedLoop:
    return loop_of(
        lambda x, acc: (fn(x, acc),), (x, start), [Slice(0, (x.shape[0],)), None], [Carried(1)], [start], tile
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, acc: torch.maximum(acc, x.amax(0)),
        lambda x, acc: acc * x.prod(0),
        lambda x, acc: torch.logaddexp(acc, x.logsumexp(0)),
        lambda x, acc: (acc * 0.5 + x.sum(0)).tanh(),
    ],
    ids=["amax", "prod", "logsumexp", "recurrence"],
)
def test_carried_values_that_are_no_sums(fn: Any) -> None:
    x, start = torch.randn(7, 3, **F64), torch.randn(3, **F64)
    loop = running(fn, x, start, 3)
    assert not sums_only(loop)
    check(loop, (x, start), second=False)


def test_online_softmax() -> None:
    x, v = torch.randn(3, 7, **F64), torch.randn(7, 2, **F64)
    start = (
        torch.full((3, 1), -torch.inf, dtype=torch.float64),
        torch.zeros(3, 1, dtype=torch.float64),
        torch.zeros(3, 2, dtype=torch.float64),
    )
    arguments = [Slice(1, (7,)), Slice(0, (7,)), None, None, None]
    loop = loop_of(online_softmax, (x, v, *start), arguments, [Carried(2), Carried(3), Carried(4)], start, 3)

    def attention(x: Tensor, v: Tensor) -> Tensor:
        _, s, o = loop(x, v, *start)
        return o / s

    assert gradcheck(attention, (x, v))


def test_no_sums_inside_rows() -> None:
    x, start = torch.randn(7, 4, **F64), torch.randn(4, **F64)

    def fn(x: Tensor, start: Tensor) -> Tensor:
        return running(lambda x, acc: torch.maximum(acc, x.amax(0)), x, start, 3)(x, start)

    loop = rows(fn, (x, start), [1, 0], 0, 3)
    check(loop, (x, start), second=False)


def test_a_second_derivative_through_dependent_trips_is_refused() -> None:
    x, start = torch.randn(7, 3, **F64), torch.randn(3, **F64)
    y = running(lambda x, acc: acc * x.prod(0), x, start, 3)(x, start)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(TilingError, match="a second derivative of loop_0, whose trips depend on each other"):
        grad.sum().backward()


def test_an_op_without_a_derivative_is_refused_in_the_backward_only() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    y = rows(lambda x: torch.igamma(x, x), (x,), [0], 0, 2)(x)
    with pytest.raises(TilingError, match=r"the gradient of loop_0 cannot be made: .*igamma"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_types_are_rounded_once(dtype: torch.dtype) -> None:
    x = torch.randn(512, 4).to(dtype)
    w = torch.randn(4).to(dtype).requires_grad_()
    rows(lambda x, w: x * w, (x, w), [0, None], 0, 1)(x, w).sum().backward()
    assert w.grad is not None and w.grad.dtype == dtype
    want = x.double().sum(0)
    assert torch.all((w.grad.double() - want).abs() <= torch.finfo(dtype).eps * want.abs().max())


def test_the_forward_keeps_its_arguments_only_and_the_backward_works_by_tiles() -> None:
    x, w1, w2 = torch.randn(256, 16), torch.randn(16, 128), torch.randn(128, 16)
    leaves = [t.clone().requires_grad_() for t in (x, w1, w2)]
    loop = rows(lambda x, w1, w2: torch.tanh(x @ w1) @ w2, (x, w1, w2), [0, None, None], 0, 16)
    loop(*leaves).sum().backward()  # plans are made
    for leaf in leaves:
        leaf.grad = None
    with Storages(*leaves) as storages:
        loop(*leaves).sum().backward()
    whole_hidden = 256 * 128 * 4
    assert storages.peak < whole_hidden
    expected = torch.autograd.grad((torch.tanh(leaves[0] @ leaves[1]) @ leaves[2]).sum(), leaves)
    for leaf, grad in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, grad, rtol=1e-4, atol=1e-4)


def test_modes_without_gradients() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    loop = rows(lambda x: x.exp(), (x,), [0], 0, 2)
    with torch.no_grad():
        assert not loop(x).requires_grad
    with torch.inference_mode():
        assert loop(x).is_inference()
    assert loop(x.detach()).grad_fn is None
    assert loop(x).grad_fn is not None


def test_an_argument_changed_in_place_is_noticed() -> None:
    x, w = torch.randn(6, 4), torch.randn(4, requires_grad=True)
    y = rows(lambda x, w: x * w.exp(), (x, w), [0, None], 0, 2)(x, w)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_one_loop_twice_in_a_graph() -> None:
    x = torch.randn(6, 4, **F64)
    loop = rows(lambda x: x.tanh() * x, (x,), [0], 0, 4)
    assert gradcheck(lambda x: loop(loop(x)), (x,))


def dual(loop: CountedLoop, x: Tensor) -> Any:
    with forward_ad.dual_level():
        return loop(forward_ad.make_dual(x, x))


torch_warns_of_itself = pytest.mark.filterwarnings("ignore:`torch.jit.script` is:DeprecationWarning")
"""The first dual tensor loads torch's own formulas for forward mode."""
FORWARD_MODE = {
    "jvp": lambda loop, x: torch.func.jvp(loop, (x,), (x,)),
    "jacfwd": lambda loop, x: torch.func.jacfwd(loop)(x),
    "hessian": lambda loop, x: torch.func.hessian(lambda x: loop(x).sum())(x),
    "dual": dual,
    "dual without a graph": torch.no_grad()(dual),
}


@torch_warns_of_itself
@pytest.mark.parametrize("name", FORWARD_MODE)
@pytest.mark.parametrize("fn", [lambda x: x.exp() * x, lambda x: x.cumsum(1)], ids=["in place", "by a copy"])
def test_forward_mode_is_refused_by_name(fn: Any, name: str) -> None:
    """Ops that write where they are told have no derivative in forward mode, and torch would say so of each."""
    x = torch.randn(6, 4)
    loop = rows(fn, (x,), [0], 0, 2)
    with pytest.raises(TilingError, match=r"a derivative of .* in forward mode"):
        FORWARD_MODE[name](loop, x)
    torch.testing.assert_close(loop(x), fn(x))


@torch_warns_of_itself
def test_a_tangent_beside_a_loop_is_no_obstacle() -> None:
    x = torch.randn(6, 4)
    loop = rows(lambda x: x.exp() * x, (x,), [0], 0, 2)
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, x) + loop(x)
        assert torch.equal(forward_ad.unpack_dual(y).tangent, x)
