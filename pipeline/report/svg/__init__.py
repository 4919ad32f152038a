"""Plots as SVG in the page: `drawing.py` says where everything is, `pen.py` draws and measures it."""
