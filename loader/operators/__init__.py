"""Operators: one file for each family, with everything that is specific to its operators.

May import `tundish.loader.plan`, `protocols` and `watch`, and the packages `formats` and `snapshot`, but nothing of
`tundish.loader.run`.
"""
