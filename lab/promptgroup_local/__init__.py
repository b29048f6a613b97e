"""The laptop: a stand-in engine, a local cluster of real control-plane processes, and the demo.

Development and trial only; no image but the stand-in engine's contains it, and neither operator nor router
imports it.
"""
