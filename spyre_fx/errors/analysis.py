"""Messages of the analyses."""

from __future__ import annotations

from spyre_fx.errors import Template, TilingError

OPAQUE = Template(
    TilingError,
    "{target} has no iteration space",
    "an op with a rule, in a form that the rule covers",
    "leave it outside every group, or give it a rule with spyre_fx.register_iteration_space",
)
