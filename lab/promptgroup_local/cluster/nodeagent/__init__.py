"""The node agent: a node of the cluster whose pods are processes of this machine."""
