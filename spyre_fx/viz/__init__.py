"""Pictures of graphs, plans and programs. Reads everything, changes nothing."""
