"""The SuperDSC of one device op: the dict that ``sdsc_N.json`` holds.

The file alone says what each core does: op, extents, work slices, and for each tensor its dims, layout with its gaps,
data format and start. Names, nesting and key order are those of the format; a ``SuperDSC-Bundle`` reader takes them
literally. Addresses in HBM are symbols (negative ids), bound by ``sdsc_execute``; a core that shares a symbol with
others starts at the symbol's value plus the distance of its slice from that of the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spyre_fx.codegen.layout import core_slices, cores_used
from spyre_fx.codegen.sdsc_constants import constant_info, masked_dims
from spyre_fx.codegen.sdsc_dims import Dim, dims_and_operands, op_of
from spyre_fx.codegen.sdsc_tensors import labeled_ds, layout_labels, primary_ds_info, schedule_tree
from spyre_fx.codegen.specs import OpSpec

Json = dict[str, Any]


def superdsc(spec: OpSpec, index: int, symbol_ids: Sequence[Sequence[int]]) -> Json:
    """Write ``spec`` as file number ``index``.

    Args:
        symbol_ids: per tensor of ``spec`` in HBM, in order, the symbol id of each core.

    Raises:
        LoweringError: for an op, a rank or a layout that the format has no form for.
        SpecError: for a buffer smaller than what the op runs over.
    """
    cores = cores_used(spec)
    dims, operands = dims_and_operands(spec)
    slices = {
        str(core): {dim.label: 0 if dim.symbol is None else at[dim.symbol] for dim in dims}
        for core, at in enumerate(core_slices(spec))
    }
    return {
        f"{index}_{spec.op}": {
            "debug_handle_": spec.origin or None,
            "sdscFoldProps_": [_factor(1, "time")],
            "sdscFolds_": {
                "dim_prop_func": [{"Affine": {"alpha_": 1, "beta_": 0}}],
                "dim_prop_attr": [_factor(1, "time")],
                "data_": {"[0]": "0"},
            },
            "coreFoldProp_": _factor(cores, "core"),
            "coreletFoldProp_": _factor(1, "corelet"),
            "numCoresUsed_": cores,
            "coreIdToDsc_": {str(core): 0 for core in range(cores)},
            "numWkSlicesPerDim_": {dim.label: dim.split for dim in dims},
            "coreIdToWkSlice_": slices,
            "coreIdToDscSchedule": {str(core): [[-1, 0, 0, 0]] for core in range(cores)},
            "dscs_": [{spec.op: _dsc(spec, dims, operands, symbol_ids)}],
        }
    }


def _dsc(spec: OpSpec, dims: Sequence[Dim], operands: Sequence[Any], symbol_ids: Sequence[Sequence[int]]) -> Json:
    cores = cores_used(spec)
    labels = layout_labels(spec, operands)
    masks = masked_dims(spec, dims)
    constants, mask_id = constant_info(spec, bool(masks))
    stage = _stage(dims)
    return {
        "numCoresUsed_": cores,
        "numCoreletsUsed_": 1,
        "coreIdsUsed_": list(range(cores)),
        "N_": {"name_": "n", **{f"{dim.label}_": dim.extent for dim in dims}},
        "coordinateMasking_": masks,
        "maskingConstId_": mask_id,
        "dataStageParam_": {"0": {"ss_": stage, "el_": dict(stage)}},
        "primaryDsInfo_": primary_ds_info(spec, operands, labels),
        "scheduleTree_": schedule_tree(spec, dims, operands, symbol_ids),
        "labeledDs_": labeled_ds(spec, operands, labels),
        "constantInfo_": constants,
        "computeOp_": [_compute_op(spec)],
    }


def _stage(dims: Sequence[Dim]) -> Json:
    """What one core works on."""
    return {
        "name_": "core",
        **{f"{dim.label}_": dim.extent // dim.split for dim in dims},
        "symbolicDimInfo_": {},
        "maxSymbolicVolume_": {},
        "coreletSplit_": {},
        "rowSplit_": {},
        "peSfpSplit_": {},
        "paddingSizes_": {},
    }


def _compute_op(spec: OpSpec) -> Json:
    op = op_of(spec)
    names = [f"Tensor{index}-idx{index}" for index in range(len(spec.args))]
    outputs = [name for name, arg in zip(names, spec.args, strict=True) if not arg.is_input]
    inputs = [name for name, arg in zip(names, spec.args, strict=True) if arg.is_input]
    # An ordinary reduction lists its output among its inputs: the accumulator that it adds to.
    accumulates = op.is_reduction and op.unit == "sfp"
    info = {name: value for name, value in spec.op_info.items() if name != "constants"}
    return {
        "exUnit": op.unit,
        "opFuncName": spec.op,
        "attributes_": {"dataFormat_": spec.args[0].device_dtype, "fidelity_": "regular", **info},
        "location": "Inner",
        "inputLabeledDs": [*inputs, *outputs] if accumulates else inputs,
        "outputLabeledDs": outputs,
    }


def _factor(factor: int, label: str) -> Json:
    return {"factor_": factor, "label_": label}
