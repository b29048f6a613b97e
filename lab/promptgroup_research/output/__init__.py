"""How results are shown: the command line's flags, plots as SVG."""
