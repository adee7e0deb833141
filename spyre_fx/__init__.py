"""Rewrite torch.fx graphs so that their working set fits a scratchpad or a cache."""

from typing import TYPE_CHECKING, Any

from spyre_fx import groups
from spyre_fx._version import __version__
from spyre_fx.analysis.iteration_space import iteration_space
from spyre_fx.analysis.registration import register_iteration_space
from spyre_fx.analysis.schedule import KernelDescriptor, SchedulePlan, WorkItem, WorkKind, plan, register_kernel
from spyre_fx.capture import capture
from spyre_fx.capture.dim_names import declare_tensor_dim, name_tensor_dims
from spyre_fx.capture.hint_scopes import spyre_hint
from spyre_fx.choosing import auto_groups
from spyre_fx.codegen.bundle import Bundle
from spyre_fx.codegen.lower import lower
from spyre_fx.codegen.specs import LoopSpec, OpSpec, TensorArg, UnimplementedOp
from spyre_fx.errors import (
    BudgetExceeded,
    CaptureError,
    DeviceError,
    HintError,
    HintWarning,
    InternalError,
    LoweringError,
    OptionError,
    PlanError,
    SpecError,
    SpyreFxError,
    TilingError,
    TilingWarning,
)
from spyre_fx.target import Target
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.explain import explain
from spyre_fx.transforms.fix_sizes import fix_sizes
from spyre_fx.transforms.groups import LoopGroup
from spyre_fx.transforms.hints import hints_to_coarse_tile_groups
from spyre_fx.transforms.summary import summary
from spyre_fx.transforms.tile import tile
from spyre_fx.viz import draw

if TYPE_CHECKING:
    from spyre_fx.backend import Backend

__all__ = [
    "Backend",
    "BudgetExceeded",
    "Bundle",
    "CaptureError",
    "CountedLoop",
    "DeviceError",
    "HintError",
    "HintWarning",
    "InternalError",
    "KernelDescriptor",
    "LoopGroup",
    "LoopSpec",
    "LoweringError",
    "OpSpec",
    "OptionError",
    "PlanError",
    "SchedulePlan",
    "SpecError",
    "SpyreFxError",
    "Target",
    "TensorArg",
    "TilingError",
    "TilingWarning",
    "UnimplementedOp",
    "WorkItem",
    "WorkKind",
    "__version__",
    "auto_groups",
    "capture",
    "declare_tensor_dim",
    "draw",
    "explain",
    "fix_sizes",
    "groups",
    "hints_to_coarse_tile_groups",
    "iteration_space",
    "lower",
    "name_tensor_dims",
    "plan",
    "register_iteration_space",
    "register_kernel",
    "spyre_hint",
    "summary",
    "tile",
]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    """``Backend`` is imported when it is used: it brings torch.compile with it, which a script may not need."""
    if name == "Backend":
        from spyre_fx.backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
