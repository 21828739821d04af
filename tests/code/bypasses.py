"""Ways around a code policy, and which layer stops each: the syntax tree, or the run itself."""

STATIC, RUNTIME = "static", "runtime"

BYPASSES: list[tuple[str, str, str]] = [
    # plain imports
    ("import", STATIC, "import os\nos.system('true')"),
    ("import as", STATIC, "import os as o\no.system('true')"),
    ("from import", STATIC, "from os import system\nsystem('true')"),
    ("dotted import", STATIC, "import os.path\nos.path.os.system('true')"),
    # modules by attribute
    ("module of random", STATIC, "import random\nrandom._os.system('true')"),
    ("from random import _os", STATIC, "from random import _os\n_os.system('true')"),
    (
        "object of an AttributeError",
        STATIC,
        "import random\ntry:\n    random.nothing\nexcept AttributeError as e:\n"
        "    e.obj._os.system('true')",
    ),
    (
        "update_wrapper",
        STATIC,
        "import functools, random\ndef f(): pass\n"
        "functools.update_wrapper(f, random.shuffle, assigned=('__globals__',), updated=())",
    ),
    ("sys of asyncio", STATIC, "import asyncio\nasyncio.sys.modules"),
    ("os of asyncio", STATIC, "import asyncio\nasyncio.base_events.os.system('true')"),
    (
        "subprocess of asyncio",
        STATIC,
        "import asyncio\nasyncio.base_events.subprocess.run(['true'])",
    ),
    ("sys of enum", STATIC, "import enum\nenum.sys.modules"),
    ("sys of dataclasses", STATIC, "import dataclasses\ndataclasses.sys.modules"),
    ("os of logging", STATIC, "import logging\nlogging.os.system('true')"),
    ("builtins of dataclasses", STATIC, "import dataclasses\ndataclasses.builtins.eval('1')"),
    # builtins
    ("__import__", STATIC, "__import__('os').system('true')"),
    ("__builtins__ as a mapping", STATIC, "__builtins__['__import__']('os').system('true')"),
    ("__builtins__ as a module", STATIC, "__builtins__.__import__('os').system('true')"),
    ("self of print", STATIC, "print.__self__.eval('1')"),
    ("loader", STATIC, "__loader__.load_module('os')"),
    ("spec", STATIC, "__spec__.loader.load_module('os')"),
    ("build_class", STATIC, "__build_class__.__self__.eval('1')"),
    # getattr
    (
        "getattr by concatenation",
        STATIC,
        "import random\ngetattr(random, '_o' + 's').system('true')",
    ),
    (
        "getattr by alias",
        STATIC,
        "import random\ng = getattr\ng(random, '_o' + 's').system('true')",
    ),
    ("getattr in a list", STATIC, "import random\n[getattr][0](random, '_o' + 's').system('true')"),
    (
        "getattr in reduce",
        STATIC,
        "import random, functools\n"
        "functools.reduce(getattr, ['_o' + 's', 'system'], random)('true')",
    ),
    (
        "__getattribute__",
        STATIC,
        "import random\nobject.__getattribute__(random, '_o' + 's').system('true')",
    ),
    # eval and exec
    ("eval", STATIC, "eval('1 + 1')"),
    ("exec by alias", STATIC, "e = exec\ne('x = 1')"),
    ("exec as a decorator", STATIC, "@exec\ndef f(): pass"),
    ("eval as a default", STATIC, "(lambda e=eval: e('1'))()"),
    ("eval in an f-string", STATIC, "f'{eval(\"1\")}'"),
    ("eval in a comprehension", STATIC, "[e('1') for e in (eval,)]"),
    ("eval in map", STATIC, "list(map(eval, ['1']))"),
    ("exec in a metaclass", STATIC, "class M(type):\n    __call__ = exec\n"),
    ("eval in other letters", STATIC, "\uff45\uff56\uff41\uff4c('1')"),
    # the interpreter's insides
    ("subclasses", STATIC, "().__class__.__base__.__subclasses__()"),
    ("mro", STATIC, "str.mro()[1].__subclasses__()"),
    ("frame of a generator", STATIC, "g = (1 for _ in ())\ng.gi_frame.f_back"),
    ("frame of a coroutine", STATIC, "async def f(): pass\nc = f()\nc.cr_frame.f_globals"),
    (
        "frame of a traceback",
        STATIC,
        "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_globals",
    ),
    ("globals of a function", STATIC, "import random\nrandom.shuffle.__globals__"),
    ("__dict__", STATIC, "import random\nrandom.__dict__['_o' + 's']"),
    ("vars", STATIC, "import random\nvars(random)['_o' + 's']"),
    ("globals", STATIC, "globals()['__buil' + 'tins__']"),
    ("locals", STATIC, "locals()['__buil' + 'tins__']"),
    (
        "match pattern",
        STATIC,
        "import random\nmatch random:\n    case object(_os=o):\n        o.system('true')",
    ),
    ("code object", STATIC, "def f(): pass\nf.__code__.replace(co_code=b'')"),
    # texts and other modules
    ("format string", STATIC, "'{0.__class__.__init__.__globals__}'.format(1)"),
    ("format_map", STATIC, "'{x.__globals__}'.format_map({'x': 1})"),
    (
        "type hints",
        STATIC,
        "import typing\ndef f(x: '1'): pass\ntyping.get_type_hints(f)",
    ),
    ("pickle", STATIC, "import pickle\npickle.loads(b'')"),
    ("ctypes", STATIC, "import ctypes\nctypes.CDLL(None).system(b'true')"),
    ("importlib", STATIC, "import importlib\nimportlib.import_module('os')"),
    ("operator", STATIC, "import operator\noperator.attrgetter('_os.system')"),
    ("pydoc", STATIC, "import pydoc\npydoc.pipepager('', 'true')"),
    ("own module", STATIC, "open('evil.py', 'w').write('import os')\nimport evil"),
    ("memory of the process", RUNTIME, "open('/proc/self/mem', 'rb')"),
    # what a check of names alone would miss
    (
        "create_subprocess_exec",
        STATIC,
        "import asyncio\nawait asyncio.create_subprocess_exec('true')",
    ),
    (
        "subprocess_shell of the loop",
        STATIC,
        "import asyncio\nloop = asyncio.get_running_loop()\n"
        "await loop.subprocess_shell(asyncio.SubprocessProtocol, 'true')",
    ),
    (
        "ForwardRef from pieces",
        STATIC,
        "import typing\ntyping.ForwardRef('__imp' + 'ort__(\"os\")')",
    ),
    (
        "Formatter",
        STATIC,
        "import random, string\nstring.Formatter().get_field('0._os', [random], {})",
    ),
    ("memory of the process by pieces", RUNTIME, "open('/proc/' + 'self/mem', 'rb')"),
    (
        "connection of a socket",
        STATIC,
        "import asyncio\nawait asyncio.open_connection('127.0.0.1', 9)",
    ),
]

RUNTIME_ALONE: list[tuple[str, str]] = [
    ("import", "import os"),
    ("import of a part", "from urllib import request"),
    ("relative import", "from . import os"),
    ("eval", "eval('1')"),
    ("exec", "exec('1')"),
    ("compile", "compile('1', '', 'eval')"),
    ("globals", "globals()"),
    ("vars", "vars()"),
    ("getattr of a module", "import random\ngetattr(random, '_os')"),
    ("getattr of an inside", "getattr((), '__class__').__base__\ngetattr(str, '__subclasses__')"),
    ("process by a module's attribute", "import random\nrandom._os.system('true')"),
    ("fork by a module's attribute", "import random\nrandom._os.fork()"),
    ("kill by a module's attribute", "import random\nrandom._os.kill(1, 0)"),
    ("process of asyncio", "import asyncio\nawait asyncio.create_subprocess_exec('true')"),
    ("shell of asyncio", "import asyncio\nawait asyncio.create_subprocess_shell('true')"),
    (
        "task of the loop",
        "import asyncio\nloop = asyncio.get_running_loop()\n"
        "await asyncio.create_task(loop.subprocess_shell(asyncio.SubprocessProtocol, 'true'))",
    ),
    ("connection of asyncio", "import asyncio\nawait asyncio.open_connection('127.0.0.1', 9)"),
    ("memory of the process", "open('/proc/self/mem', 'rb')"),
    (
        "type hint from pieces",
        "import random, typing\n"
        "def f(x: 'random._os.system(\"true\")'): pass\ntyping.get_type_hints(f)",
    ),
    (
        "field of a Formatter",
        "import random, string\n"
        "string.Formatter().get_field('0._os.system', [random], {})[0]('true')",
    ),
]
"""Code that would come past the check of the tree: the run itself refuses it."""
