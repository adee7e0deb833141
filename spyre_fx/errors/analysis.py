"""Messages of the analyses."""

from __future__ import annotations

from spyre_fx.errors import OptionError, Template, TilingError

OPAQUE = Template(
    TilingError,
    "{target} has no iteration space",
    "an op with a rule, in a form that the rule covers",
    "leave it outside every group, or give it a rule with spyre_fx.register_iteration_space",
)

NOT_AN_OP = Template(
    OptionError,
    "{op!r} cannot be given an iteration space",
    "a torch.library.custom_op, an OpOverload or an op with a single overload",
    "pass the op itself, as in torch.ops.my_library.my_op.default",
)

SEVERAL_OVERLOADS = Template(
    OptionError,
    "{op} has the overloads {overloads}",
    "one of them",
    "register each overload, as in torch.ops.{path}.{first}",
)

NOT_A_FUNCTION = Template(
    OptionError,
    "{role} {value!r} for {op}",
    "a function of an OpCall",
    "pass a function that builds the IterationSpace with a SpaceBuilder",
)

NOT_PURE = Template(
    OptionError,
    "{op} {effect}",
    "an op whose results follow from its operands alone",
    "keep it outside of loops; it needs no iteration space there",
)

REGISTERED_TWICE = Template(
    OptionError,
    "{op} has an iteration space already",
    "one registration per op and process",
    "remove the second one",
)

NOT_A_SPACE = Template(
    OptionError,
    "the rule that was registered for {op} gave {value!r}",
    "an IterationSpace, or None where the call is opaque",
    "return SpaceBuilder().build(operands=..., results=...)",
)

WRONG_SPACE = Template(
    OptionError,
    "the iteration space that was registered for {op} has {problem}",
    "for each dim of each tensor the axes whose extents multiply to its size",
    "correct the rule; its call was {call}",
)
