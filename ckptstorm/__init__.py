"""A cluster-wide checkpoint storm tester: every GPU saves at once, then every GPU restores.

The package is kept light on purpose: a thousand ranks that import a heavy package from a
shared file system are a metadata storm of their own, so this module imports nothing.
"""

__version__ = "0.1.0"
