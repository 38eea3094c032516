"""The protocol of acts on live, as small programs, and a search over all their interleavings.

Nothing here imports the package: the programs say what the package has to do.
`python -m tests.protocol` searches all combinations of three actors: 76 million states, in about
four minutes.
"""
