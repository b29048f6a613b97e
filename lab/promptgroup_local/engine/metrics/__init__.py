"""The stand-in's metrics page, in the words of each engine that it stands for."""
