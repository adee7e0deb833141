"""Gradients of loops: another loop over the same tiles, which computes each tile again and never keeps its values."""
