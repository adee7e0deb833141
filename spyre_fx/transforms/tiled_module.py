"""The graph module that ``tile`` returns: pickling it keeps what lowering needs."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from spyre_fx.shows import ShowsItself
from spyre_fx.torch_compat import FakeTensorMode
from spyre_fx.transforms.counted_loop import CountedLoop
from spyre_fx.transforms.graph_text import Data, graph_from_data, graph_to_data
from spyre_fx.transforms.loop_text import loop_from_data, loop_to_data


class TiledGraphModule(ShowsItself, fx.GraphModule):
    """A ``GraphModule`` that shows itself, and whose nodes keep their names and their meta when it is pickled.

    It is made as any other, ``TiledGraphModule(root, graph)``, and is one in every respect. A plain ``GraphModule``
    pickles its code alone: shapes, loop stamps and stack traces are gone when it is loaded.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        loops = {name: child for name, child in self.named_children() if type(child) is CountedLoop}
        state = {key: value for key, value in self.__dict__.items() if key != "_graph"}
        state["_modules"] = {name: None if name in loops else child for name, child in self._modules.items()}
        data = {
            "nodes": graph_to_data(self.graph),
            "loops": {name: loop_to_data(loop) for name, loop in loops.items()},
        }
        return _restore, (type(self).__name__, state, self.graph._codegen, data)


def _restore(name: str, state: dict[str, Any], codegen: Any, data: Data) -> TiledGraphModule:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    graph = graph_from_data(data["nodes"], mode)
    graph.set_codegen(codegen)
    module = TiledGraphModule(nn.Module(), fx.Graph(), class_name=name)
    module.__dict__.update(state)
    for target, loop in data["loops"].items():
        module._modules[target] = loop_from_data(loop, mode, CountedLoop)
    module.graph = graph
    return module
