"""The commands. Each module runs one, by the flags that `flags` has parsed."""
