"""The simulated world: engines with caches, sessions that talk to them, the clock that drives both."""
