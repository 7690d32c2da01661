"""The plan of what is to be computed: frozen nodes, and the fluent methods that build them.

One operator family a file; `dataset` joins the families. No process is started and no file is
opened here, and no node knows `Dataset`: a plan is data, which `tundish.loader.run` interprets.
"""
