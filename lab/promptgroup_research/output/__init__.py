"""The output of results: the command line's flags, plots as SVG."""
