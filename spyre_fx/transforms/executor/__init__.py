"""How a ``CountedLoop`` runs. Nothing in this folder edits a graph that a user holds."""
