"""The data path: requests to the replica that is warm for them. Imports nothing of the operator."""
