"""Ways to choose the ops of a group for ``tile`` by what they are, in place of node names.

>>> from spyre_fx import groups
>>> groups.every("layers.*.mlp")
Every(pattern='layers.*.mlp')
"""

from spyre_fx.transforms.select import every, lines, module

__all__ = ["every", "lines", "module"]
