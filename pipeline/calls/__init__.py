"""Jobs called from a Python program: `keywords` says how each is called, `call` runs one.

`tidelog.jobs` is the public face of this package. Keywords are the options of the command line:
both are read from the one declaration in the job's module.
"""
