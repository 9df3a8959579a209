"""A rank's entry for a test: nothing is dropped from the page cache between save and restore."""

from __future__ import annotations

from ckptstorm import __main__
from ckptstorm.storm import settle

settle.drop_written = lambda crew, step: ""
__main__.main()
