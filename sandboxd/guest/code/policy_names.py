"""Lists of the built-in code policy."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_MODULES = _names(
    """
    PIL __future__ abc aiohttp array asyncio base64 binascii bisect bs4 calendar cmath
    collections colorsys contextlib copy csv dataclasses datetime dateutil decimal difflib
    enum fractions functools graphlib gzip hashlib heapq hmac html io itertools json keyword
    locale logging lxml math matplotlib numbers numpy openpyxl pandas pathlib plotly polars
    pprint pyarrow pydantic pytz random re requests scipy seaborn secrets sklearn sqlite3
    statistics string struct sympy tabulate textwrap time tqdm types typing unicodedata
    urllib.parse uuid warnings yaml zipfile zlib zoneinfo
    """
)
BLOCKED_CALLS = _names(
    """
    __import__ compile delattr eval exec globals help locals setattr vars
    """
)
BLOCKED_NAMES = _names(
    """
    __build_class__ __builtins__ __import__ __loader__ __spec__
    """
)
FRAME_ATTRIBUTES = _names(
    """
    ag_await ag_code ag_frame cr_await cr_code cr_frame cr_origin f_back f_builtins f_code
    f_globals f_locals f_trace func_globals gi_code gi_frame gi_yieldfrom mro tb_frame
    tb_next
    """
)
"""Attributes that lead to frames and code objects."""
BLOCKED_MEMBERS = _names(
    """
    Formatter ForwardRef create_connection create_datagram_endpoint create_server
    create_subprocess_exec create_subprocess_shell create_unix_connection create_unix_server
    eval exec get_field get_type_hints open_connection open_unix_connection run_in_executor
    sock_connect start_server start_unix_server subprocess_exec subprocess_shell
    """
)
"""Functions of allowed modules that start processes, connect, or evaluate text."""
SAFE_DUNDERS = _names(
    """
    __abs__ __add__ __aenter__ __aexit__ __aiter__ __all__ __and__ __anext__ __annotations__
    __await__ __bool__ __call__ __cause__ __class__ __contains__ __context__ __copy__
    __deepcopy__ __delitem__ __doc__ __enter__ __eq__ __exit__ __float__ __floordiv__
    __format__ __ge__ __get__ __getitem__ __gt__ __hash__ __iadd__ __index__ __init__
    __init_subclass__ __int__ __invert__ __iter__ __le__ __len__ __lt__ __main__
    __match_args__ __matmul__ __missing__ __mod__ __mul__ __name__ __ne__ __neg__ __new__
    __next__ __notes__ __or__ __pos__ __post_init__ __pow__ __qualname__ __radd__ __repr__
    __result__ __reversed__ __rmul__ __round__ __set__ __set_name__ __setitem__ __slots__
    __str__ __sub__ __truediv__ __version__ __xor__
    """
)
"""Names with two underscores that lead nowhere."""
MODULE_ATTRIBUTES = _names(
    """
    _builtins _codecs _collections_abc_sys _ctypes _imp _io _operator _os _pickle
    _posixsubprocess _signal _socket _subprocess _sys _thread _warnings_sys _weakref
    builtins codecs ctypes importlib inspect marshal multiprocessing nt os pickle posix pty
    runpy shutil signal site socket socketserver ssl subprocess sys sysconfig tempfile
    threading traceback
    """
)
"""Modules that allowed modules have as attributes."""
WAYS = {
    "os": "use open() and pathlib for files, and the sandbox's commands for the rest",
    "sys": "raise an exception to end a run, and print() to write output",
    "subprocess": "run commands with the sandbox's Run call instead",
    "shutil": "use pathlib, or the sandbox's file calls",
    "socket": "use requests or aiohttp",
    "urllib": "use urllib.parse, requests or aiohttp",
    "urllib.request": "use requests or aiohttp",
    "pickle": "use json",
    "operator": "write the expression itself, or a lambda",
    "threading": "use asyncio",
    "multiprocessing": "use asyncio, or separate contexts",
    "eval": "use json.loads for data, and plain expressions for the rest",
    "exec": "write the statements themselves",
    "compile": "write the code itself",
    "globals": "use names of variables, or a dict",
    "locals": "use names of variables, or a dict",
    "vars": "name the attributes, or use dataclasses.asdict",
    "setattr": "assign to the attribute by its name",
    "delattr": "use del with the attribute's name",
    "__import__": "use an import statement",
    "help": "read the documentation outside of the sandbox",
}
"""What to use instead."""
