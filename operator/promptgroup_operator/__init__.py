"""The control path: observe a PromptGroup's world, decide, act. Imports the router's contract only."""
