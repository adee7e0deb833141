"""The bundle dialect for xDSL: what ``mlir_parse`` needs to read ``bundle.mlir``. Needs the extra ``mlir``."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.affine import Affine
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import ArrayAttr, Builtin, IndexType, IntegerAttr, StringAttr
from xdsl.dialects.func import Func
from xdsl.dialects.scf import Scf
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    BaseAttr,
    IRDLOperation,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class InputArgType(ParametrizedAttribute, TypeAttribute):
    """An address that the host hands over: ``!sdscbundle.input_arg<index>``.

    In the spyre syntax a size is written so too, with ``granularity=G, max_value=M`` behind ``index``.
    """

    name = "sdscbundle.input_arg"
    value: IndexType
    bounds: ArrayAttr[IntegerAttr]
    """Empty, or granularity and largest value."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        bounds: list[IntegerAttr] = []
        with parser.in_angle_brackets():
            value = parser.parse_attribute()
            for key in ("granularity", "max_value"):
                if not parser.parse_optional_punctuation(","):
                    break
                parser.parse_keyword(key)
                parser.parse_punctuation("=")
                bounds.append(IntegerAttr.from_index_int_value(parser.parse_integer()))
        return [value, ArrayAttr(bounds)]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<index")
        for key, bound in zip(("granularity", "max_value"), self.bounds, strict=False):
            printer.print_string(f", {key}={bound.value.data}")
        printer.print_string(">")


@irdl_attr_definition
class SizedArgType(ParametrizedAttribute, TypeAttribute):
    """A size that the host hands over, in the generic syntax: ``!sdscbundle.sized_arg<index, 64 : i64, 512 : i64>``."""

    name = "sdscbundle.sized_arg"
    value: IndexType
    granularity: IntegerAttr
    max_value: IntegerAttr


@irdl_op_definition
class InputArgExtractOp(IRDLOperation):
    """``%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : TYPE -> index``."""

    name = "sdscbundle.input_arg_extract"
    argument = operand_def(BaseAttr(InputArgType) | BaseAttr(SizedArgType))
    result = result_def(IndexType)
    field = attr_def(StringAttr)

    @classmethod
    def parse(cls, parser: Parser) -> InputArgExtractOp:
        parser.parse_keyword("value")
        parser.parse_keyword("from")
        unresolved = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        argument = parser.resolve_operand(unresolved, kind)
        return cls.build(operands=[argument], result_types=[result], attributes={"field": StringAttr("value")})

    def print(self, printer: Printer) -> None:
        printer.print_string(" value from ")
        printer.print_ssa_value(self.argument)
        printer.print_string(" : ")
        printer.print_attribute(self.argument.type)
        printer.print_string(" -> index")


@irdl_op_definition
class SdscExecuteOp(IRDLOperation):
    """``sdscbundle.sdsc_execute (%addr_0, %addr_1) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2]}``."""

    name = "sdscbundle.sdsc_execute"
    addresses = var_operand_def(IndexType)
    sdsc_filename = attr_def(StringAttr)
    symbol_ids = attr_def(ArrayAttr[IntegerAttr])

    @classmethod
    def parse(cls, parser: Parser) -> SdscExecuteOp:
        addresses: list[SSAValue] = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parser.parse_operand(IndexType())
        )
        return cls.build(operands=[addresses], attributes=parser.parse_optional_attr_dict())

    def print(self, printer: Printer) -> None:
        printer.print_string(" (")
        printer.print_list(self.addresses, printer.print_ssa_value)
        printer.print_string(")")
        printer.print_attr_dict(self.attributes)

    def verify_(self) -> None:
        ids = [attribute.value.data for attribute in self.symbol_ids]
        if len(ids) != len(self.addresses):
            raise VerifyException(f"{len(ids)} symbol ids for {len(self.addresses)} addresses")
        if any(identifier >= 0 for identifier in ids) or len(set(ids)) != len(ids):
            raise VerifyException("symbol ids must be negative and different from each other")


SdscBundle = Dialect("sdscbundle", [InputArgExtractOp, SdscExecuteOp], [InputArgType, SizedArgType])


def context() -> Context:
    """A context with every dialect that a bundle uses."""
    loaded = Context()
    for dialect in (Builtin, Func, Arith, Scf, Affine, SdscBundle):
        loaded.load_dialect(dialect)
    return loaded
