"""One request on its way: from the client's socket to an engine's and back."""
