"""Hit rate and errors of a semantic cache, on public questions and on synthetic ones."""
