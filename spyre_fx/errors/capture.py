"""What ``capture`` and the passes that need shapes say when they must refuse."""

from __future__ import annotations

from spyre_fx.errors import CaptureError, Template

NO_SHAPES = Template(
    CaptureError,
    "graph input {name!r} has no recorded shape (no meta['val']), and no example inputs were given",
    "a graph made by spyre_fx.capture, torch.export or make_fx, or example inputs to run it on",
    "make the graph with spyre_fx.capture(fn, *example_args), or pass example_args",
)
EXAMPLE_COUNT = Template(
    CaptureError,
    "{given} example inputs for a graph with {wanted} inputs ({names})",
    "one example per graph input, in the same order",
    "pass {wanted} examples, flattened in the order of the placeholders",
)
NOT_STRIDED = Template(
    CaptureError,
    "a tensor of layout {layout} at {name!r}",
    "strided (dense) tensors",
    "convert it with to_dense() before the graph",
)
NO_FAKE_RESULT = Template(
    CaptureError,
    "the shape of the result of {op} cannot be computed: {reason}",
    "an op that runs on fake tensors of the shapes of its inputs",
    "check that the example inputs fit the graph; a custom op needs a fake kernel (torch.library.register_fake)",
)

NOT_CALLABLE = Template(
    CaptureError,
    "{kind} {value} is no program",
    "a function, a module, an ExportedProgram, or the path of a .pt2 file",
    "pass the object that you call with tensors (an instance, not its class)",
)
ARGUMENTS = Template(
    CaptureError,
    "the example inputs do not fit {name}{signature}: {reason}",
    "example inputs as {name} is called with them: capture(fn, *args, **kwargs)",
    "pass one example for each argument; only shape, strides and dtype of the tensors count",
)
CONTROL_FLOW = Template(
    CaptureError,
    "{name} chooses its path by the values of a tensor{where}",
    "a program whose path follows from shapes and Python values alone",
    "use torch.where, or torch.cond for a branch and torch.while_loop for a loop",
)
NOT_TRACEABLE = Template(
    CaptureError,
    "{name} cannot be made into a graph{where}: {error}: {reason}",
    "tensor code that torch.export can trace",
    "change what the message names, or capture the parts around it separately",
)
LOST = Template(
    CaptureError,
    "{name} wraps tensors so that torch.export loses sight of them, as torch.func.grad does",
    "ops on the tensors that the program is given",
    "trace it with torch.fx.experimental.proxy_tensor.make_fx(fn)(*args) and use that graph",
)
ASSIGNED = Template(
    CaptureError,
    "forward sets {attributes}, which the graph could not do",
    "state that lives in buffers, or is returned",
    "make it a buffer (register_buffer in __init__), return it, or guard it with torch.compiler.is_compiling()",
)
UNSUPPORTED_INPUT = Template(
    CaptureError,
    "the program needs the order of its side effects kept (effect token {name!r})",
    "a program whose only effects are on parameters, buffers and inputs",
    "take printing and script objects out of the program",
)
JOINT_PROGRAM = Template(
    CaptureError,
    "an exported program with outputs of the kinds {kinds}",
    "a forward program",
    "export the module without its loss, in one direction",
)
NO_FILE = Template(
    CaptureError,
    "no file {path}",
    "the path of a .pt2 file",
    "check the path; torch.export.save(program, path) writes one",
)
BAD_FILE = Template(
    CaptureError,
    "{path} cannot be read as an exported program: {reason}",
    "a complete .pt2 file written by torch.export.save",
    "save it again; a TorchScript or state_dict file is not an exported program",
)
