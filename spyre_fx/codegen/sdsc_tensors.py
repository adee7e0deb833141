"""The tensors of a SuperDSC: layout labels, schedule tree with start addresses, labelled data structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spyre_fx.codegen.layout import cores_used, lx_start, word_bytes
from spyre_fx.codegen.sdsc_dims import Dim, Operand, op_of
from spyre_fx.codegen.specs import OpSpec, TensorArg
from spyre_fx.codegen.tensor_dims import describe
from spyre_fx.errors.spec import TOO_MANY_LAYOUTS

Json = dict[str, Any]

_LABELS = ("OUTPUT", "KERNEL", "INPUT", "KERNEL_IDX")
_MATMUL_LABELS = ("INPUT", "KERNEL", "OUTPUT", "KERNEL_IDX")


def layout_labels(spec: OpSpec, operands: Sequence[Operand]) -> tuple[str, ...]:
    """The layout label of each tensor: the next one for each new (set of dims, stick dim, stick size)."""
    names = _MATMUL_LABELS if op_of(spec).unit == "pt" else _LABELS
    met: dict[Any, str] = {}
    for arg, operand in zip(spec.args, operands, strict=True):
        key = _layout_key(arg, operand)
        if key not in met and len(met) == len(names):
            raise TOO_MANY_LAYOUTS(count=len(met) + 1, where=describe(spec), limit=len(names))
        met.setdefault(key, names[min(len(met), len(names) - 1)])
    return tuple(met[_layout_key(arg, operand)] for arg, operand in zip(spec.args, operands, strict=True))


def _layout_key(arg: TensorArg, operand: Operand) -> Any:
    return frozenset(operand.order), operand.stick, arg.device_size[-1]


def primary_ds_info(spec: OpSpec, operands: Sequence[Operand], labels: Sequence[str]) -> Json:
    """One entry per layout label, with the dim order of the first tensor that has it."""
    info: Json = {}
    for arg, operand, label in zip(spec.args, operands, labels, strict=True):
        info.setdefault(
            label,
            {
                "layoutDimOrder_": list(operand.order),
                "stickDimOrder_": [operand.stick],
                "stickSize_": [arg.device_size[-1]],
            },
        )
    return info


def labeled_ds(spec: OpSpec, operands: Sequence[Operand], labels: Sequence[str]) -> list[Json]:
    """One entry per tensor; ``scale_`` is in the dim order of the label."""
    orders: dict[str, tuple[str, ...]] = {}
    entries: list[Json] = []
    for index, (arg, operand, label) in enumerate(zip(spec.args, operands, labels, strict=True)):
        order = orders.setdefault(label, operand.order)
        present = {"isPresent": 1}
        entries.append(
            {
                "ldsIdx_": index,
                "dsName_": f"Tensor{index}",
                "dsType_": label,
                "scale_": [operand.scale[dim] for dim in order],
                "wordLength": word_bytes(arg.device_dtype),
                "dataFormat_": arg.device_dtype,
                "memOrg_": {"lx": present} if "lx" in arg.allocation else {"hbm": present, "lx": present},
            }
        )
    return entries


def schedule_tree(
    spec: OpSpec, dims: Sequence[Dim], operands: Sequence[Operand], symbol_ids: Sequence[Sequence[int]]
) -> list[Json]:
    """One ``allocate`` node per tensor, in order."""
    ids = iter(symbol_ids)
    by_label = {dim.label: dim for dim in dims}
    return [
        _allocate(index, arg, operand, by_label, next(ids) if "hbm" in arg.allocation else _lx_starts(arg, spec))
        for index, (arg, operand) in enumerate(zip(spec.args, operands, strict=True))
    ]


def _lx_starts(arg: TensorArg, spec: OpSpec) -> list[int]:
    return [lx_start(arg, spec)] * cores_used(spec)


def _allocate(index: int, arg: TensorArg, operand: Operand, dims: dict[str, Dim], starts: Sequence[int]) -> Json:
    """``starts`` holds one symbol id (HBM) or byte address (LX) per core."""
    component = "lx" if "lx" in arg.allocation else "hbm"
    cores = len(starts)
    node: Json = {
        "nodeType_": "allocate",
        "name_": f"allocate-Tensor{index}_{component}",
        "prev_": "",
        "ldsIdx_": index,
        "component_": component,
        "layoutDimOrder_": list(operand.order),
        "maxDimSizes_": [-1] * len(operand.order),
        "indirectAllocType_": "no_indirection",
        "startAddressCoreCorelet_": {
            "dim_prop_func": [{"Map": {}}, {"Const": {}}, {"Const": {}}],
            "dim_prop_attr": [_factor(cores, "core"), _factor(1, "corelet"), _factor(1, "time")],
            "data_": {f"[{core}, 0, 0]": str(start) for core, start in enumerate(starts)},
        },
    }
    if component == "hbm":
        node = _insert_after(node, "component_", "isStartAddrSymbolic_", 1)
    if operand.gaps:
        keys = ["-1"] if component == "hbm" else [str(core) for core in range(cores)]
        node["backGapCore_"] = {label: dict.fromkeys(keys, str(gap)) for label, gap in operand.gaps.items()}
    lanes = arg.device_size[-1]
    node["coordinates_"] = {
        "coordInfo": {label: _coordinate(label, dims[label], operand, lanes) for label in operand.order},
        "coreIdToWkSlice_": {},
    }
    return node


def _coordinate(label: str, dim: Dim, operand: Operand, lanes: int) -> Json:
    """How one dim of a tensor is spread over cores, and over sticks if it is the stick dim."""
    size = dim.extent // dim.split
    match operand.scale[label]:
        case -2:
            steps = [(lanes, 1), (0, 1), (0, 1), (lanes, 1), (0, lanes)]
        case -1:
            steps = [(1, 1), (0, 1), (0, 1), (1, 1)]
        case _ if label == operand.stick:
            steps = [(size, dim.split), (0, 1), (0, 1), (lanes, -(-size // lanes)), (1, lanes)]
        case _:
            steps = [(size, dim.split), (0, 1), (0, 1), (1, size)]
    arrays = len(steps) - 3
    names = ["core_fold", "corelet_fold", "row_fold", *(f"elem_arr_{index}" for index in reversed(range(arrays)))]
    return {
        "spatial": 3,
        "temporal": 0,
        "elemArr": arrays,
        "padding": "nopad",
        "folds": {
            "dim_prop_func": [{"Affine": {"alpha_": alpha, "beta_": 0}} for alpha, _ in steps],
            "dim_prop_attr": [_factor(factor, name) for (_, factor), name in zip(steps, names, strict=True)],
        },
    }


def _insert_after(node: Json, key: str, name: str, value: Any) -> Json:
    """``node`` with a new entry behind ``key``; the format is written in its own key order."""
    entries: Json = {}
    for existing, content in node.items():
        entries[existing] = content
        if existing == key:
            entries[name] = value
    return entries


def _factor(factor: int, label: str) -> Json:
    return {"factor_": factor, "label_": label}
