"""Graph to specs to text. Nothing in this folder edits the graph."""
