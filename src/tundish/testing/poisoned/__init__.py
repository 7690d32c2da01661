"""A folder for ``PYTHONPATH``, in which every interpreter finds its ``sitecustomize``."""
