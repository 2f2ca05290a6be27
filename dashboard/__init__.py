"""Looking at a search. Reads the store and never writes to it."""
