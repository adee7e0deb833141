"""The backend that ``torch.compile`` calls, and how it hands its graphs through AOTAutograd."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import fx

from spyre_fx.backend.artifacts import Artifacts
from spyre_fx.backend.boxed import Boxed
from spyre_fx.backend.decompositions import DECOMPOSITIONS
from spyre_fx.backend.graph_compiler import GraphCompiler
from spyre_fx.backend.hints import mark_named_inputs, names_before_partition
from spyre_fx.backend.options import Options, parse
from spyre_fx.backend.partition import recomputing_partition
from spyre_fx.backend.records import GraphRecord
from spyre_fx.backend.torch_compat import default_partition, missing_compiler, through_aot
from spyre_fx.errors.calls import checked_init
from spyre_fx.errors.options import NO_COMPILER
from spyre_fx.shows import counted
from spyre_fx.tables import Table, Tables


@checked_init
class Backend:
    """A ``torch.compile`` backend that the user holds, to look at what was compiled.

    >>> import torch
    >>> backend = Backend(tile=lambda gm: [])
    >>> compiled = torch.compile(lambda x: x.relu() + 1, backend=backend)
    >>> compiled(torch.ones(3)).tolist(), len(backend.graphs)
    ([2.0, 2.0, 2.0], 1)

    ``graphs`` has a ``GraphRecord`` for each graph that was compiled, in order: what was captured, the groups with
    reasons, the tiled graph, the bundle if one was made, and times. Identical graphs are compiled once.

    args: the fields of ``Options``.

    errors: ``OptionError`` for unknown or impossible options.
    """

    __name__ = "spyre_fx"
    """What Dynamo calls it in its messages."""

    def __init__(self, **options: Any) -> None:
        self.options = parse(None, options)
        self.graphs: list[GraphRecord] = []
        self._artifacts = Artifacts()

    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: list[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compile a graph of Dynamo's. ``mode`` and ``options`` of ``torch.compile`` go over those of this object."""
        return compile_dynamo_graph(
            gm, example_inputs, parse(mode, options, self.options), self._artifacts, self.graphs
        )

    def explain(self) -> str:
        """What was compiled, and why so."""
        return "\n".join(record.explain() for record in self.graphs) or "nothing was compiled yet"

    def __repr__(self) -> str:
        return f"Backend({counted(len(self.graphs), 'graph')})"

    def __str__(self) -> str:
        return self.explain()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        rows = [(one.stage, one.loops, "\n".join(one.reasons)) for one in self.graphs]
        shown = Tables([Table(rows, ("graph", "loops", "why")) if rows else self.explain()])._repr_mimebundle_()
        return {**shown, "text/plain": self.explain()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Backend:
        """A compiled module that is copied goes on with the same backend."""
        return self


def spyre_fx(gm: fx.GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: Any = None) -> Any:
    """The entry point that ``torch.compile(..., backend="spyre_fx")`` calls.

    args:
        gm: the graph that Dynamo captured.
        example_inputs: its inputs.
        mode: ``"default"``, ``"reduce-memory"`` or ``"max-autotune"``: presets of the options.
        options: a dict of ``Options`` fields.

    errors: ``OptionError`` for unknown or impossible options; ``TilingError`` for groups of the user's that cannot be
        tiled; ``HintError`` for hints that cannot be followed. Torch shows them inside ``BackendCompilerFailed``.
    """
    parsed = parse(mode, options)
    return compile_dynamo_graph(gm, example_inputs, parsed, _artifacts_of(parsed), [])


@functools.lru_cache(maxsize=16)
def _artifacts_of(options: Options) -> Artifacts:
    """One cache for all who give the backend by its name and the same options."""
    return Artifacts()


def compile_dynamo_graph(
    gm: fx.GraphModule, example_inputs: list[Any], options: Options, artifacts: Artifacts, records: list[GraphRecord]
) -> Any:
    """Through AOTAutograd: functional ATen graphs for forward and backward, each compiled by a ``GraphCompiler``.

    Ops that have a kernel of their own stay whole (layer norm, softmax, gelu, fused attention): a graph in which
    nothing is tiled must run as fast as the user's program.
    """
    if options.tile != "off":
        mark_named_inputs(gm, example_inputs)
    if options.body == "inductor" and (reason := missing_compiler()):
        raise NO_COMPILER(reason=reason)
    compiler = GraphCompiler(options, artifacts, records)
    partition = (
        recomputing_partition(compiler.groups, compiler.notes.append) if options.recompute else default_partition
    )

    def stage(name: str) -> Any:
        def compile_stage(aten: fx.GraphModule, inputs: list[Any]) -> Boxed:
            return compiler.compile(aten, name)

        return compile_stage

    return through_aot(
        gm,
        example_inputs,
        fw_compiler=stage("forward"),
        bw_compiler=stage("backward"),
        inference_compiler=stage("inference"),
        decompositions=dict(DECOMPOSITIONS),
        partition_fn=names_before_partition(partition),
        # A graph that writes to its inputs cannot be cut where the backward computes things again.
        keep_inference_input_mutations=options.execute == "cpu" and not options.recompute,
    )
