"""Messages of the automatic choice of groups."""

from __future__ import annotations

from spyre_fx.errors import BudgetExceeded, OptionError, Template

BUDGET_VALUE = Template(
    OptionError,
    "memory_budget={budget!r}",
    "a positive count of bytes, or a fraction of the untiled peak above 0.0 and up to 1.0",
    "pass an int for bytes or a float for a fraction",
)
OUT_OF_REACH = Template(
    BudgetExceeded,
    "no tiling was found that needs at most {budget}; the nearest needs {nearest}, and without loops it is {untiled}",
    "a memory budget that values which must be whole leave room for",
    "set memory_budget={bytes} or more, or make the inputs smaller; the error's `nearest` has the groups for that",
)
