"""One pod on the node: its containers as processes, its volumes, its probes, its status."""
