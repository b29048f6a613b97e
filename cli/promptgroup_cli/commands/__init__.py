"""The commands. Each module adds its flags to the parser and runs."""
