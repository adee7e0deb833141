// The ops and types of the bundle dialect, for a stock mlir-opt: mlir-opt --irdl-file=sdscbundle.irdl.mlir bundle.mlir
irdl.dialect @sdscbundle {
  // A number that the host hands over at launch: an address, or a size with its granularity and largest value.
  irdl.type @input_arg {
    %index = irdl.is index
    irdl.parameters(value: %index)
  }
  irdl.type @sized_arg {
    %index = irdl.is index
    %granularity = irdl.base "#builtin.integer"
    %max_value = irdl.base "#builtin.integer"
    irdl.parameters(value: %index, granularity: %granularity, max_value: %max_value)
  }
  irdl.operation @input_arg_extract {
    %address = irdl.base @sdscbundle::@input_arg
    %size = irdl.base @sdscbundle::@sized_arg
    %argument = irdl.any_of(%address, %size)
    %index = irdl.is index
    %field = irdl.is "value"
    irdl.operands(argument: %argument)
    irdl.results(result: %index)
    irdl.attributes { "field" = %field }
  }
  // Runs one SuperDSC file; symbol_ids[i] is the symbol by which the file knows address i.
  irdl.operation @sdsc_execute {
    %index = irdl.is index
    %string = irdl.base "#builtin.string"
    %array = irdl.base "#builtin.array"
    irdl.operands(addresses: variadic %index)
    irdl.attributes { "sdsc_filename" = %string, "symbol_ids" = %array }
  }
}
