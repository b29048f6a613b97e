"""The flags of each command: one module a command, which imports nothing heavy.

`--help`, a mistake at the command line, and a shell that completes a word read these modules alone. What a command does
is in `commands`, which is imported when it runs.
"""
