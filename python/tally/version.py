"""torch.version."""
from ._library import header as _header

__version__ = _header.version
cuda = hip = xpu = git_version = None
debug = False
