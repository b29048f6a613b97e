"""The stand-in's metrics page, in the format of each engine that it imitates."""
