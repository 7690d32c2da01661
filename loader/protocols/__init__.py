"""The contracts between operators and the engine, and the values that pass between them.

May import `tundish.loader.plan`, the meters of `tundish.loader.watch` and the packages below the loader, but no operator and
nothing of `tundish.loader.run`.
"""
