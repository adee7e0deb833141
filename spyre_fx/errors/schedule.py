"""Messages of the schedule plan."""

from __future__ import annotations

from spyre_fx.errors import BudgetExceeded, CaptureError, PlanError, SpecError, Template

NOT_A_GRAPH = Template(
    CaptureError,
    "an object of type {found} where a graph belongs",
    "a torch.fx.GraphModule of ATen ops",
    "make one with spyre_fx.capture(fn, *example_args)",
)
NOT_A_NODE = Template(
    CaptureError,
    "an object of type {found} where a node belongs",
    "a torch.fx.Node of a graph of ATen ops",
    "take one from gm.graph.nodes",
)
NO_SHAPES = Template(
    CaptureError,
    'no node of this graph has a value in meta["val"]',
    "shapes and dtypes on the nodes",
    "make the graph with spyre_fx.capture(fn, *example_args), which records them",
)
CYCLE = Template(
    PlanError,
    "the work items {names} wait for each other",
    "a graph in which every node stands after its inputs",
    "call graph.lint() to find the edge that points backwards, then move or rewire that node",
)
BUDGET = Template(
    BudgetExceeded,
    "planning this graph may take {charge} {unit}, and the budget has {left} left",
    "a budget of at least {charge} {unit}",
    "raise the budget, or plan a smaller graph",
)
WORK_OVERFLOW = Template(
    BudgetExceeded,
    "the bound on the planning work passes 2**64 - 1",
    "a graph whose bound fits 64 bits",
    "plan a smaller graph",
)
ELEMENT_OVERFLOW = Template(
    BudgetExceeded,
    "the elements of all work items together pass 2**64 - 1, at {root}",
    "a graph whose results have at most 2**64 - 1 elements in total",
    "plan parts of the graph one by one",
)
BAD_BUDGET = Template(
    SpecError,
    "budget={budget!r}",
    "None, a non-negative int (visits), or a WorkLedger",
    "use plan_bound(gm).visits for the least budget that admits the graph",
)
NOT_AN_OP = Template(
    SpecError,
    "an object of type {found} as the op of a kernel",
    "an OpOverload such as torch.ops.mylib.scale.default, or what torch.library.custom_op returns",
    "pass the op itself, not its Python implementation",
)
KERNEL_TWICE = Template(
    SpecError,
    "{op} has another kernel descriptor already",
    "one descriptor for each op",
    "register a function of the call that returns the descriptor for its shapes",
)
KERNEL_OUTPUTS = Template(
    SpecError,
    "the kernel descriptor of {op} gives outputs {described}, and this call makes {actual}",
    "equal shapes",
    "register a function of the call that returns the descriptor for its shapes",
)
KERNEL_REUSE = Template(
    SpecError,
    "the reuse of a reduction {name!r}, where the kernel has {known}",
    "reuse of reductions that the descriptor names",
    "correct the name, or add the reduction",
)
KERNEL_EFFECT = Template(
    SpecError,
    "the effect {effect!r} of argument {argument!r}",
    "one of {allowed} for an argument of the op's schema",
    "correct the effects of the kernel descriptor",
)
