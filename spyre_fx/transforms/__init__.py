"""Graph to graph. Nothing in this folder emits device code."""
