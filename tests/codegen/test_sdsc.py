"""SuperDSC files: the structure of the format, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import sympy
import torch

from spyre_fx.codegen import sdsc
from spyre_fx.codegen.build_program import build_program
from spyre_fx.codegen.layout import default_layout
from spyre_fx.codegen.sdsc_constants import constant_info, decode_constant, encode_constant
from spyre_fx.codegen.specs import LoopSpec
from spyre_fx.errors import LoweringError, SpecError
from spyre_fx.target import Target
from tests.codegen.spec_samples import (
    C0,
    C1,
    C2,
    HALF,
    SAMPLES,
    canonical,
    half,
    matmul,
    matrix,
    op,
    place,
    untiled_add,
)

SCHEMA = Path(sdsc.__file__).with_name("schema") / "superdsc.schema.json"
V1 = Target(bundle_format="1.0")


def files(sample, target=None):
    return list(build_program(sample.specs, target).files.values())


def body(data):
    ((_, root),) = data.items()
    ((_, dsc),) = root["dscs_"][0].items()
    return root, dsc


def test_text(golden):
    golden.check(json.dumps(files(matmul())[0], indent=1))


@pytest.mark.parametrize("target", [Target(), V1], ids=["seed", "1.0"])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_file_fits_the_schema(name, target):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for data in files(SAMPLES[name](), target):
        assert list(validator.iter_errors(json.loads(json.dumps(data)))) == []


def test_the_formats_own_example():
    """``add`` of [512, 1024] halves, rows over 32 cores, with a symbol per core."""
    (data,) = files(untiled_add(), V1)
    root, dsc = body(data)
    assert list(data) == ["0_add"]
    assert list(root) == [
        "debug_handle_", "sdscFoldProps_", "sdscFolds_", "coreFoldProp_", "coreletFoldProp_", "numCoresUsed_",
        "coreIdToDsc_", "numWkSlicesPerDim_", "coreIdToWkSlice_", "coreIdToDscSchedule", "dscs_",
    ]  # fmt: skip
    assert list(dsc) == [
        "numCoresUsed_", "numCoreletsUsed_", "coreIdsUsed_", "N_", "coordinateMasking_", "maskingConstId_",
        "dataStageParam_", "primaryDsInfo_", "scheduleTree_", "labeledDs_", "constantInfo_", "computeOp_",
    ]  # fmt: skip
    assert root["coreFoldProp_"] == {"factor_": 32, "label_": "core"}
    assert root["numWkSlicesPerDim_"] == {"mb": 32, "out": 1}
    assert root["coreIdToWkSlice_"]["31"] == {"mb": 31, "out": 0}
    assert dsc["N_"] == {"name_": "n", "mb_": 512, "out_": 1024}
    stage = dsc["dataStageParam_"]["0"]
    assert (stage["ss_"]["mb_"], stage["ss_"]["out_"]) == (16, 1024)
    assert stage["ss_"] == stage["el_"]
    assert dsc["primaryDsInfo_"] == {
        "OUTPUT": {"layoutDimOrder_": ["mb", "out"], "stickDimOrder_": ["out"], "stickSize_": [64]}
    }
    nodes = dsc["scheduleTree_"]
    assert [node["name_"] for node in nodes] == [f"allocate-Tensor{index}_hbm" for index in range(3)]
    starts = [list(node["startAddressCoreCorelet_"]["data_"].values()) for node in nodes]
    assert starts == [[str(-index) for index in range(32 * k + 1, 32 * k + 33)] for k in range(3)]
    assert list(nodes[0]) == [
        "nodeType_", "name_", "prev_", "ldsIdx_", "component_", "isStartAddrSymbolic_", "layoutDimOrder_",
        "maxDimSizes_", "indirectAllocType_", "startAddressCoreCorelet_", "coordinates_",
    ]  # fmt: skip
    rows, columns = nodes[0]["coordinates_"]["coordInfo"].values()
    assert folds(rows) == [(16, 32, "core_fold"), (0, 1, "corelet_fold"), (0, 1, "row_fold"), (1, 16, "elem_arr_0")]
    assert folds(columns) == [
        (1024, 1, "core_fold"), (0, 1, "corelet_fold"), (0, 1, "row_fold"), (64, 16, "elem_arr_1"),
        (1, 64, "elem_arr_0"),
    ]  # fmt: skip
    assert (rows["elemArr"], columns["elemArr"]) == (1, 2)
    assert dsc["labeledDs_"][0] == {
        "ldsIdx_": 0, "dsName_": "Tensor0", "dsType_": "OUTPUT", "scale_": [1, 1], "wordLength": 2,
        "dataFormat_": "SEN169_FP16", "memOrg_": {"hbm": {"isPresent": 1}, "lx": {"isPresent": 1}},
    }  # fmt: skip
    assert dsc["constantInfo_"] == "{}"
    assert dsc["computeOp_"] == [
        {
            "exUnit": "sfp",
            "opFuncName": "add",
            "attributes_": {"dataFormat_": "SEN169_FP16", "fidelity_": "regular"},
            "location": "Inner",
            "inputLabeledDs": ["Tensor0-idx0", "Tensor1-idx1"],
            "outputLabeledDs": ["Tensor2-idx2"],
        }
    ]


def folds(coordinate):
    functions, attributes = coordinate["folds"]["dim_prop_func"], coordinate["folds"]["dim_prop_attr"]
    return [
        (function["Affine"]["alpha_"], attribute["factor_"], attribute["label_"])
        for function, attribute in zip(functions, attributes, strict=True)
    ]


def test_a_tile_of_a_larger_buffer_has_gaps_and_lx_has_offsets():
    first, second = files(canonical())
    _, add = body(first)
    whole, _, tile = add["scheduleTree_"]
    assert whole["backGapCore_"] == {"mb": {"-1": "512"}, "out": {"-1": "3072"}}
    assert set(whole["startAddressCoreCorelet_"]["data_"].values()) == {"-1"}, "all cores share the tensor's symbol"
    assert tile["name_"] == "allocate-Tensor2_lx"
    assert "backGapCore_" not in tile
    assert "isStartAddrSymbolic_" not in tile
    assert set(tile["startAddressCoreCorelet_"]["data_"].values()) == {"0"}
    assert add["labeledDs_"][2]["memOrg_"] == {"lx": {"isPresent": 1}}
    _, mul = body(second)
    assert set(mul["scheduleTree_"][2]["startAddressCoreCorelet_"]["data_"].values()) == {"-4"}


def test_matmul():
    (data,) = files(matmul())
    root, dsc = body(data)
    assert list(data) == ["0_batchmatmul"]
    assert dsc["N_"] == {"name_": "n", "mb_": 128, "out_": 512, "in_": 256}
    assert root["numWkSlicesPerDim_"] == {"mb": 8, "out": 1, "in": 1}
    assert dsc["primaryDsInfo_"] == {
        "INPUT": {"layoutDimOrder_": ["mb", "in"], "stickDimOrder_": ["in"], "stickSize_": [64]},
        "KERNEL": {"layoutDimOrder_": ["in", "out"], "stickDimOrder_": ["out"], "stickSize_": [64]},
        "OUTPUT": {"layoutDimOrder_": ["mb", "out"], "stickDimOrder_": ["out"], "stickSize_": [64]},
    }
    (compute,) = dsc["computeOp_"]
    assert compute["exUnit"] == "pt"
    assert compute["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"]


def test_padding_of_a_reduced_dim_is_masked():
    (data,) = files(SAMPLES["padded_matmul"]())
    _, dsc = body(data)
    assert dsc["N_"]["in_"] == 128
    assert dsc["coordinateMasking_"] == {"in": [[100, 28]]}
    mask = dsc["constantInfo_"][str(dsc["maskingConstId_"])]
    assert (mask["name_"], mask["data_"]["data_"]["[0, 0, 0]"]) == ("samv-maskvalue", ["0"])


def test_a_sum_over_sticks_leaves_one_value_per_stick():
    (data,) = files(SAMPLES["stick_sum"]())
    _, dsc = body(data)
    source, result = dsc["labeledDs_"]
    assert source["dsType_"] == result["dsType_"] == "OUTPUT"
    assert (source["scale_"], result["scale_"]) == ([1, 1], [1, -2])
    reduced = dsc["scheduleTree_"][1]["coordinates_"]["coordInfo"]["out"]
    assert [fold[:2] for fold in folds(reduced)] == [(64, 1), (0, 1), (0, 1), (64, 1), (0, 64)]
    (compute,) = dsc["computeOp_"]
    assert compute["inputLabeledDs"] == ["Tensor0-idx0", "Tensor1-idx1"], "a reduction reads its accumulator"
    assert dsc["coordinateMasking_"] == {"out": [[100, 28]]}


def test_a_sum_over_rows_keeps_the_stick():
    (data,) = files(SAMPLES["row_sum"]())
    _, dsc = body(data)
    assert dsc["N_"] == {"name_": "n", "mb_": 256, "out_": 96}, "dims in the order of the iteration space"
    assert dsc["labeledDs_"][1]["scale_"] == [-1, 1]
    assert dsc["scheduleTree_"][1]["layoutDimOrder_"] == ["mb", "out"]
    assert dsc["coordinateMasking_"] == {}


def test_scalars_get_a_stick_dim_of_their_own():
    scalar = default_layout((), torch.float16)
    x, z = place(("x", scalar), ("z", scalar))
    (data,) = build_program((op("abs", {}, x.at(0, 0), z.at(0, 0, output=True)),)).files.values()
    _, dsc = body(data)
    assert dsc["N_"] == {"name_": "n", "out_": 64}
    assert [entry["scale_"] for entry in dsc["labeledDs_"]] == [[-2], [-2]]


def test_batch_dims_that_an_operand_lacks_are_scaled_away():
    b = sympy.Symbol("b")
    x, y, z = place(("x", half(32, 64)), ("y", half(4, 64, 128)), ("z", half(4, 32, 128)))
    spec = op(
        "batchmatmul",
        {b: (4, 1), C0: (32, 1), C1: (128, 1), C2: (64, 1)},
        x.at(*matrix(C0, C2)),
        y.at(C2, sympy.floor(C1 / 64), b, sympy.Mod(C1, 64)),
        z.at(C0, sympy.floor(C1 / 64), b, sympy.Mod(C1, 64), output=True),
    )
    _, dsc = body(next(iter(build_program((spec,)).files.values())))
    first, second, _ = dsc["scheduleTree_"]
    assert first["layoutDimOrder_"] == ["mb", "in", "x"]
    assert dsc["labeledDs_"][0]["scale_"] == [1, 1, -1]
    assert second["layoutDimOrder_"] == ["x", "out", "in"]


def test_a_matmul_with_one_column_gets_its_dim_back():
    x, y, z = place(("x", half(32, 64)), ("y", half(64, 1)), ("z", half(32, 1)))
    spec = op("batchmatmul", {C0: (32, 1), C2: (64, 1)}, x.at(*matrix(C0, C2)), y.at(0, C2, 0),
              z.at(0, C0, 0, output=True))  # fmt: skip
    _, dsc = body(next(iter(build_program((spec,)).files.values())))
    assert dsc["N_"] == {"name_": "n", "mb_": 32, "out_": 64, "in_": 64}
    assert dsc["labeledDs_"][2]["scale_"] == [1, -2]


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 1e-5, -65504.0, math.inf, -math.inf, 1e300, 7, -3, True, 2**40])
def test_constants_survive_their_encoding(value):
    wanted = float(torch.tensor(value, dtype=torch.float32)) if isinstance(value, float) else value
    decoded = decode_constant(*encode_constant(value))
    assert decoded == wanted
    assert math.copysign(1, decoded) == math.copysign(1, wanted)


@pytest.mark.parametrize(
    ("name", "data_format", "mask"),
    [
        ("max", HALF, -math.inf), ("min", HALF, math.inf), ("sum", HALF, 0.0), ("prod", HALF, 1.0),
        ("max", "IEEE_INT32", -(2**31)), ("min", "IEEE_INT64", 2**63 - 1), ("sum", "IEEE_INT32", 0),
    ],
)  # fmt: skip
def test_masks_do_not_change_the_result(name, data_format, mask):
    x, z = place(("x", half(96, 100)), ("z", half(96, 1)))
    spec = op(name, {C0: (96, 1), C1: (100, 1)}, x.at(*matrix(C0, C1)), z.at(0, C0, 0, output=True))
    spec = replace(spec, args=(replace(spec.args[0], device_dtype=data_format), spec.args[1]))
    entries, index = constant_info(spec, True)
    entry = entries[str(index)]
    assert decode_constant(entry["dataFormat_"], int(entry["data_"]["data_"]["[0, 0, 0]"][0])) == mask


def test_constants_and_other_info_are_in_the_file():
    x, z = place(("x", half(8, 64)), ("z", half(8, 64)))
    at, space = matrix(C0, C1), {C0: (8, 1), C1: (64, 1)}
    spec = op("clip", space, x.at(*at), z.at(*at, output=True), constants={"clipMin": -1.0, "clipMax": 2.0})
    spec = replace(spec, op_info={**spec.op_info, "note": "b"}, origin="%clip in model.py:3")
    root, dsc = body(next(iter(build_program((spec,)).files.values())))
    assert [entry["name_"] for entry in dsc["constantInfo_"].values()] == ["clipMin", "clipMax"]
    assert dsc["computeOp_"][0]["attributes_"]["note"] == "b"
    assert root["debug_handle_"] == "%clip in model.py:3"


def copy_spec(x_coordinates, z_coordinates, space, x=(64, 64), z=(64, 64), name="abs"):
    source, result = place(("x", half(*x)), ("z", half(*z)))
    return op(name, space, source.at(*x_coordinates), result.at(*z_coordinates, output=True))


AT = matrix(C0, C1)
SPACE = {C0: (64, 1), C1: (64, 1)}


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        (copy_spec(AT, AT, SPACE, name="absolute"), LoweringError, r"device op 'absolute'.*decompose it"),
        (copy_spec(AT, AT, SPACE, name="subb"), LoweringError, r"did you mean 'sub'"),
        (copy_spec((AT[0], C0, sympy.Mod(C1 + 3, 64)), AT, SPACE), LoweringError, r"no lane shift exists"),
        (copy_spec((0, C0, 5), AT, SPACE), LoweringError, r"lane 5 of input 0 \(x\).*multiples of 64"),
        (copy_spec((AT[0], sympy.floor(C0 / 2), AT[2]), AT, SPACE), LoweringError, r"floor\(c0/2\) at dim 1"),
        (copy_spec((AT[0], C0 + C1, AT[2]), AT, SPACE), LoweringError, r"refine the iteration space"),
        (copy_spec((AT[0], 3, AT[2]), AT, SPACE), SpecError, r"size 64 of input 0 \(x\) without a symbol"),
        (copy_spec((AT[0], C1, AT[2]), AT, SPACE), LoweringError, r"c1 at dim 1.*a symbol of its own"),
        (copy_spec(AT, AT, {C0: (70, 1), C1: (64, 1)}), SpecError, r"64 device elements for 70.*pad the buffer to 70"),
        (copy_spec((AT[0], C0 + 1, AT[2]), AT, SPACE), SpecError, r"window of input 0 \(x\) that ends at 65"),
    ],
)
def test_what_has_no_form_is_refused_by_name(spec, error, words):
    with pytest.raises(error, match=words):
        build_program((spec,))


def test_too_many_dims_are_refused():
    symbols = sympy.symbols("d0:9")
    layout = default_layout((2,) * 8 + (64,), torch.float16)
    x, z = place(("x", layout), ("z", layout))
    coordinates = (*symbols[1:-1], 0, symbols[0], symbols[-1])
    space = dict.fromkeys(symbols[:-1], (2, 1)) | {symbols[-1]: (64, 1)}
    with pytest.raises(LoweringError, match=r"9 iteration dims.*at most 8.*merge dims"):
        build_program((op("abs", space, x.at(*coordinates), z.at(*coordinates, output=True)),))


def test_an_lx_tile_larger_than_a_split_dim_is_refused():
    add = canonical().specs[0].body[0].body[0]
    tile = replace(add.args[2], device_size=(16, 1024, 64))
    with pytest.raises(SpecError, match=r"split over cores and lies in LX with a gap of 512"):
        build_program((LoopSpec(2, (LoopSpec(4, (replace(add, args=(*add.args[:2], tile)),)),)),))


def test_one_symbol_in_two_dims_is_refused():
    x, z = place(("x", half(8, 8, 64)), ("z", half(8, 64)))
    diagonal = x.at(C0, sympy.floor(C1 / 64), C0, sympy.Mod(C1, 64))
    with pytest.raises(SpecError, match=r"c0 in two device dims of input 0 \(x\).*a symbol of its own"):
        build_program((op("abs", {C0: (8, 1), C1: (64, 1)}, diagonal, z.at(*AT, output=True)),))
