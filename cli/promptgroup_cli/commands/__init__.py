"""The commands: a module each, or a folder where one is large, with its flags, its work and its output.

`add` gives a parser the command's flags, `run` does its work. A module imports nothing heavy at its top, so that
`--help`, a mistake at the command line, and a shell that completes a word are answered at once; it may not import
`__main__`, which alone stands above it.
"""
