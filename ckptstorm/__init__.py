"""A cluster-wide checkpoint storm tester: every GPU saves at once, then every GPU restores.

The package is kept light on purpose: a thousand ranks that import a heavy package from a
shared file system are a metadata storm of their own, so this module imports nothing until it is asked.
"""

TYPE_CHECKING = False  # the name that type checkers know, without importing typing
if TYPE_CHECKING:
    from typing import Any

    from ckptstorm.report.frames import load as load
    from ckptstorm.report.importers.frames import import_result as import_result

__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    """`ckptstorm.load` and `import_result`, imported when first used: only analysts need them, and they have pandas."""
    if name == "load":
        from ckptstorm.report.frames import load

        return load
    if name == "import_result":
        from ckptstorm.report.importers.frames import import_result

        return import_result
    raise AttributeError(f"module 'ckptstorm' has no attribute {name!r}")
