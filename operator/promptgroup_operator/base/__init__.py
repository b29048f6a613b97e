"""What every other folder uses: settings, the errors that end a pass, and durations as users write them.

Imports nothing of the operator.
"""
