"""Runs a generated program on a simulated device. Nothing in this folder knows a graph."""
