"""The engine's side inside its sandbox: standard library and the model environment, none of our packages.

The folder is bound read-only as ``/opt/engine/inside`` and run as ``python -P -m inside.transformers_server``; its
files import each other relatively, so that the names are the same here and there.
"""
