"""Checks commands against a policy."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from sandboxd.policy import inner_languages, wrappers
from sandboxd.policy.decision import ALLOWED, Decision, Finding, Rule, shown
from sandboxd.policy.profile import Policy, is_guarded
from sandboxd.policy.syntax import (
    MAX_SYNTAX_BYTES,
    NotUnderstood,
    Script,
    Step,
    heredoc_span,
    parse,
)
from sandboxd.policy.words import Word, fold, heredoc_text

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_FINDINGS = 5
MAX_SCRIPTS = 32
"""Scripts within a command: `bash -c` and the like."""
MAX_SCRIPT_CHARACTERS = 3 * MAX_SYNTAX_BYTES
"""Of all scripts within a command, each counted up to what is parsed of it."""
MAX_DEPTH = 8
"""Wrappers and scripts within each other."""
MAX_REMEMBERED = 1024
MAX_REMEMBERED_CHARACTERS = 512

_PROGRAM_DIRECTORIES = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
_RESERVED = wrappers.words_of(
    "! { } [[ ]] case do done elif else esac fi for function if in select then"
) | wrappers.words_of("until while")
_CODE_OPTIONS = {"python": "c", "python3": "c", "perl": "eE", "node": "ep", "ruby": "e", "php": "r"}
_EVALUATORS = wrappers.words_of("[ getopts let mapfile printf read readarray test wait")
_NAMING_BUILTINS = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "wait"})
_HIDDEN = re.compile(r"\$\(|`|<\(")
_EVALUATES = frozenset({"arithmetic_expansion", "c_style_for_statement", "(("})
_OPTION_READERS = frozenset({"find", "sed", "awk", "gawk", "mawk", "sort", "xargs"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class CommandChecker:
    """Checks against one policy, and remembers what it has decided."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._checks_nothing = policy.checks_nothing
        self._remembered: dict[str, Decision] = {}

    def check(self, command: str | Sequence[str], env: Iterable[str] = ()) -> Decision:
        """Whether a command line, or a program with its arguments, may run with these variables."""
        if self._checks_nothing:
            return ALLOWED
        if not isinstance(command, str) or any(map(is_guarded, env)):
            return check(command, self.policy, env)
        decision = self._remembered.get(command)
        if decision is None:
            decision = check(command, self.policy)
            if len(command) <= MAX_REMEMBERED_CHARACTERS:
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[command] = decision
        return decision


def check(command: str | Sequence[str], policy: Policy, env: Iterable[str] = ()) -> Decision:
    """Whether a command line, or a program with its arguments, may run with these variables."""
    if policy.checks_nothing:
        return ALLOWED
    inspection = _Inspection(policy)
    for name in env:
        inspection.variable(name)
    if isinstance(command, str):
        inspection.add_script(command, depth=0)
    else:
        inspection.words(_Call([Word(word) for word in command], is_direct=False))
    return inspection.decide()


class _Call(NamedTuple):
    """A command to be looked at."""

    words: Sequence[Word]
    depth: int = 0
    is_direct: bool = True
    """Whether the shell looks it up itself, so that a function can be meant."""
    input_text: str | None = None
    """What it reads from its standard input, if that is in the command."""
    functions: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Signs:
    """What is harmless alone, anywhere in a command, and not together."""

    evaluates: bool = False
    """Arithmetic and the like, which run what they find in a subscript: x='a[$(rm y)]'; $((x))."""
    subscripts: bool = False
    hidden: str = ""
    """Quoted text that would run something, if it were evaluated."""
    brackets: bool = False
    option_values: bool = False
    """Values that are options: X=-exec."""
    option_readers: list[str] = field(default_factory=list)
    """Commands that take a variable, and options that run something: find . "$X"."""

    @property
    def unclear(self) -> str:
        if self.hidden and (self.subscripts or (self.evaluates and self.brackets)):
            return self.hidden
        return self.option_readers[0] if self.option_values and self.option_readers else ""


class _Inspection:
    """One command, with all that it runs."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._findings: list[Finding] = []
        self._scripts: deque[tuple[str, int]] = deque()
        self._script_count = 0
        self._script_characters = 0
        self.signs = _Signs()

    def decide(self) -> Decision:
        while self._scripts and len(self._findings) < MAX_FINDINGS:
            self._script(*self._scripts.popleft())
        if self.signs.unclear:
            self._unclear(self.signs.unclear)
        if not self._findings:
            return ALLOWED
        return Decision(tuple(dict.fromkeys(self._findings))[:MAX_FINDINGS])

    def add_script(self, text: str, *, depth: int) -> None:
        self._script_count += 1
        self._script_characters += min(len(text), MAX_SYNTAX_BYTES)
        if (
            depth > MAX_DEPTH
            or self._script_count > MAX_SCRIPTS
            or self._script_characters > MAX_SCRIPT_CHARACTERS
        ):
            self._unless_any_is_allowed(
                Rule.TOO_COMPLEX, text, "Too many commands are wrapped in each other.", "Unwrap it."
            )
        else:
            self._scripts.append((text, depth))

    # --- what is found in a script ---

    def _script(self, text: str, depth: int) -> None:
        try:
            script = parse(text)
        except NotUnderstood as error:
            self._unless_any_is_allowed(error.rule, text, error.why, error.instead)
            return
        _Walk(self, script, depth).run()

    def words(self, first: _Call) -> None:
        """A command and those it wraps."""
        waiting = [first]
        while waiting and len(self._findings) < MAX_FINDINGS:
            call = waiting.pop()
            if not call.words:
                continue
            if call.depth > MAX_DEPTH:
                self.add_script(call.words[0].text, depth=call.depth)
                continue
            waiting.extend(self._wrapped(call))

    def _wrapped(self, call: _Call) -> list[_Call]:
        name_word, *args = call.words
        if not name_word.is_literal:
            self._unless_any_is_allowed(
                Rule.DYNAMIC,
                name_word.text,
                f"Which command `{shown(name_word.text)}` is, is known only when it runs.",
                "Write the name of the command itself.",
            )
            return []
        name = posixpath.basename(name_word.text)
        if name_word.text in _RESERVED and not name_word.is_quoted and call.is_direct:
            self._unclear(name_word.text)
            return []
        if not self._name(name_word.text, call):
            return []
        self._pattern(call.words)
        try:
            self._arguments(name, args)
            inside = wrappers.inside(name, args)
        except wrappers.Unclear as unclear:
            self._unless_any_is_allowed(
                Rule.DYNAMIC,
                name,
                f"What `{name}` does cannot be told from `{shown(str(unclear))}`.",
                "Use plain options, and quote variables.",
            )
            return []
        return self._inside(inside, name, call) if inside else []

    def _inside(self, inside: wrappers.Inside, name: str, call: _Call) -> list[_Call]:
        for variable in inside.variables:
            self.variable(variable)
        if inside.unseen:
            self._unseen(name, f"`{name}` would run {shown(inside.unseen)}, which cannot be seen.")
        scripts = list(inside.scripts)
        if inside.reads_input:
            if call.input_text is None:
                self._unseen(name, f"`{name}` would run what it reads, which cannot be seen.")
            else:
                scripts.append(Word(call.input_text))
        for script in scripts:
            if script.is_literal:
                self.add_script(script.text, depth=call.depth + 1)
            else:
                self._unless_any_is_allowed(
                    Rule.DYNAMIC,
                    name,
                    f"What `{name}` runs is put together when it runs.",
                    "Write the command itself, in single quotes.",
                )
        is_direct = name in ("time", "coproc")
        return [
            _Call(words, call.depth + 1, is_direct, call.input_text, call.functions)
            for words in inside.commands
        ]

    # --- rules ---

    def _name(self, path: str, call: _Call) -> bool:
        name = posixpath.basename(path)
        if not name:
            self._unclear(path)
            return False
        if name in self._policy.forbid or path in self._policy.forbid:
            self._forbidden(name)
            return False
        allow = self._policy.allow
        if allow is None or path in allow or (call.is_direct and path in call.functions):
            return True
        if "/" in path:
            if name in allow and posixpath.dirname(path) in _PROGRAM_DIRECTORIES:
                return True
        elif name in allow:
            return True
        self._not_listed(path, name)
        return False

    def _forbidden(self, name: str) -> None:
        self._add(
            Rule.FORBIDDEN_COMMAND,
            name,
            f"`{shown(name)}` is forbidden here.",
            self._policy.instead.get(name, ""),
        )

    def _not_listed(self, path: str, name: str) -> None:
        if "/" in path and posixpath.dirname(path) not in _PROGRAM_DIRECTORIES:
            problem = f"`{shown(path)}` is a program of its own; what it does cannot be seen."
            instead = "Run a script through its interpreter, as in `python3 SCRIPT`."
        else:
            problem = f"`{shown(name)}` is not on the allow-list."
            instead = self._policy.instead.get(name, "")
        allowed = f"Allowed are {self._policy.examples} and what the shell itself does."
        if any(finding.instead.endswith(allowed) for finding in self._findings):
            allowed = ""
        self._add(Rule.NOT_ON_ALLOW_LIST, name, problem, f"{instead} {allowed}".strip())

    def _pattern(self, words: Sequence[Word]) -> None:
        if not self._policy.forbid_patterns:
            return
        line = " ".join(word.text for word in words)[:4096]
        bare = line[len(posixpath.dirname(words[0].text)) :].lstrip("/")
        for pattern in self._policy.forbid_patterns:
            if fnmatchcase(line, pattern) or fnmatchcase(bare, pattern):
                self._add(
                    Rule.FORBIDDEN_PATTERN,
                    line,
                    f"`{shown(line)}` is of the form `{shown(pattern)}`, which is forbidden here.",
                )
                return

    def _arguments(self, name: str, args: Sequence[Word]) -> None:
        if self._policy.allow is not None:
            problem = inner_languages.problem(name, args)
            if problem:
                self._add(Rule.UNSEEN, name, f"`{name}` may run commands here: {problem}.")
        if name in _NAMING_BUILTINS:
            self._named_variables(name, args)
        if not self._policy.inline_code:
            self._inline_code(name, args)

    def _named_variables(self, name: str, args: Sequence[Word]) -> None:
        if name == "printf" and not (args and args[0].starts_like_an_option()):
            return
        for word in args:
            if _hides_a_subscript(word.text):
                self._unclear(word.text)
            match = _NAME.match(word.text.removeprefix("-v"))
            if match and word.is_literal:
                self.variable(match[0])

    def _inline_code(self, name: str, args: Sequence[Word]) -> None:
        letters = _CODE_OPTIONS.get(name)
        if letters is None:
            return
        rest = deque(args)
        is_inline = True  # without a file it reads code from its input
        while rest:
            word = rest.popleft()
            if word.text in ("-W", "-X") and rest:
                rest.popleft()
            elif word.text == "-m" or not word.starts_like_an_option():
                is_inline = False
                break
            elif not word.is_literal or _gives_code(word.text, letters):
                break
        if is_inline:
            self._add(
                Rule.UNSEEN,
                name,
                f"`{name}` takes no code from a command here.",
                f"Write it to a file and run `{name} FILE`.",
            )

    def variable(self, name: str) -> None:
        if self._policy.allow is None:
            return
        if is_guarded(name):
            self._add(
                Rule.GUARDED_VARIABLE,
                name,
                f"Setting `{shown(name)}` would change what commands mean.",
                "Leave it as it is.",
            )

    def redirect(self, operator: str, target: Word) -> None:
        if self._policy.allow is not None and re.match(r"/dev/(tcp|udp)/", target.text):
            self._add(
                Rule.NETWORK,
                target.text,
                f"`{shown(target.text)}` is a network connection, and there is no network.",
                "Upload data through the files API.",
            )
        if not self._policy.forbid_writes or operator.startswith(("<&", ">&", "<")):
            return
        path = posixpath.normpath(target.text)
        for pattern in self._policy.forbid_writes:
            if target.is_literal and not fnmatchcase(path, pattern):
                continue
            self._add(
                Rule.FORBIDDEN_WRITE,
                target.text,
                f"Writing to `{shown(target.text)}` is forbidden here.",
                "Write to another place in the workspace, by its name.",
            )
            return

    def arithmetic(self, names: Iterable[str]) -> None:
        """For bash `((rm))` is a sum, for other shells a command in brackets."""
        for name in self._policy.forbid.intersection(names):
            self._forbidden(name)

    def unclear(self, text: str) -> None:
        self._unclear(text)

    def _unclear(self, text: str) -> None:
        self._unless_any_is_allowed(
            Rule.UNPARSABLE,
            text,
            f"It is not clear what the shell makes of `{shown(text)}`.",
            "Write it in a simpler way.",
        )

    def _unseen(self, command: str, problem: str) -> None:
        self._unless_any_is_allowed(
            Rule.UNSEEN, command, problem, "Write the commands themselves, or use python3 SCRIPT."
        )

    def _unless_any_is_allowed(self, rule: Rule, command: str, problem: str, instead: str) -> None:
        """What is not known can only be refused where it is known what is allowed."""
        if self._policy.allow is not None:
            self._add(rule, command, problem, instead)

    def _add(self, rule: Rule, command: str, problem: str, instead: str = "") -> None:
        self._findings.append(Finding(rule, shown(command), problem, instead))


class _Walk:
    """Every command of one script."""

    def __init__(self, inspection: _Inspection, script: Script, depth: int) -> None:
        self._inspection = inspection
        self._script = script
        self._depth = depth
        self._functions: set[str] = set()
        self._signs = inspection.signs

    def run(self) -> None:
        for step in self._script.steps():
            handler = _HANDLERS.get(step.node.type)
            if handler is not None:
                handler(self, step)
            elif step.node.type in _EVALUATES:
                self._signs.evaluates = True
                if step.node.type == "((" and step.parent:
                    self._inspection.arithmetic(
                        _NAME.findall(self._script.text_of(step.parent.node))
                    )

    # --- handlers, by the type of the node ---

    def _command(self, step: Step) -> None:
        redirects = [one for one in step.node.children if one.type.endswith("_redirect")]
        parts = _words_of(step.node.children)
        if step.parent and step.parent.node.type == "redirected_statement":
            outer = [one for one in step.parent.node.children if one.type.endswith("_redirect")]
            redirects += outer
            behind = _words_of(outer)
            parts += behind
            if behind and b"&>" in self._script.bytes_of(step.parent.node):
                # For other shells than bash `ls &> x rm y` is two commands.
                self._inspection.unclear(self._script.text_of(step.parent.node))
        words = self._folded(parts)
        self._notice(words)
        call = _Call(
            words,
            self._depth,
            input_text=self._input_text(redirects),
            functions=frozenset(self._functions),
        )
        self._inspection.words(call)

    def _folded(self, parts: Sequence[Node]) -> list[Word]:
        words: list[Word] = []
        end = -1
        for part in parts:
            word = fold(part, self._script)
            if part.start_byte == end:
                # One word for bash, though two for the grammar.
                joined = words.pop().text + word.text
                word = Word(joined, is_literal=False, may_split=True)
            words.append(word)
            end = part.end_byte
        return words

    def _notice(self, words: Sequence[Word]) -> None:
        texts = {word.text for word in words}
        if not _EVALUATORS.isdisjoint(texts):
            self._signs.evaluates = True
        variables = [word.text for word in words if not word.is_literal]
        readers = _OPTION_READERS & texts
        if readers and any(one.startswith(('"$', "$")) for one in variables):
            self._signs.option_readers += readers
            if any(one.startswith(('"$(', '"`')) for one in variables):
                self._signs.option_values = True

    def _input_text(self, redirects: Sequence[Node]) -> str | None:
        inputs = [
            one
            for one in redirects
            if one.type != "file_redirect" or any(c.type in ("<", "<&") for c in one.children)
        ]
        if len(inputs) != 1 or any(one.type == "file_descriptor" for one in inputs[0].children):
            return None
        redirect = inputs[0]
        if redirect.type == "herestring_redirect":
            word = fold(redirect.children[-1], self._script)
            return word.text if word.is_literal else None
        if redirect.type == "heredoc_redirect":
            return self._heredoc_text(redirect)
        return None

    def _heredoc_text(self, redirect: Node) -> str | None:
        parts = {child.type: child for child in redirect.children}
        start = parts["heredoc_start"]
        first, last = heredoc_span(self._script.source, start, parts["heredoc_end"])
        text = self._script.source[first:last].decode(errors="replace")
        if not self._script.heredoc_is_quoted(start):
            if "$" in text or "`" in text:
                return None
            text = heredoc_text(text)
        text = self._script.stash.get(text.removesuffix("\n"), text)
        if "<<-" in parts:
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        return text

    def _function(self, step: Step) -> None:
        node, parent = step
        name = node.child_by_field_name("name")
        after = node.next_sibling
        is_unconditional = (
            parent is not None
            and parent.node.type == "program"
            and (after is None or after.type in (";", "\n", "comment") or after.is_named)
        )
        if name is not None and is_unconditional:
            self._functions.add(self._script.text_of(name))

    def _assignment(self, step: Step) -> None:
        name = step.node.child_by_field_name("name")
        if name is not None and name.type == "subscript":
            name = name.child_by_field_name("name")
        if name is not None:
            self._inspection.variable(self._script.text_of(name))
        value = step.node.child_by_field_name("value")
        if value is not None:
            self._value(value)

    def _value(self, node: Node) -> None:
        word = fold(node, self._script)
        self._signs.brackets |= "[" in word.text
        self._signs.option_values |= word.is_literal and word.text.startswith("-")

    def _loop(self, step: Step) -> None:
        variable = step.node.child_by_field_name("variable")
        if variable is not None:
            self._inspection.variable(self._script.text_of(variable))
        for value in step.node.children_by_field_name("value"):
            self._value(value)

    def _declaration(self, step: Step) -> None:
        words = [fold(one, self._script) for one in step.node.children[1:]]
        for child, word in zip(step.node.children[1:], words, strict=True):
            if child.type == "variable_assignment":
                continue
            if not word.is_literal:
                self._inspection.unclear(word.text)
            elif word.text.startswith(("-", "+")):
                if "n" in word.text:
                    self._inspection.unclear(word.text)
                self._signs.evaluates |= "i" in word.text
            else:
                match = _NAME.match(word.text)
                self._inspection.variable(match[0] if match else word.text)
                self._signs.evaluates |= "[" in word.text

    def _unset(self, step: Step) -> None:
        self._functions.clear()
        self._declaration(step)

    def _redirect(self, step: Step) -> None:
        operator = next((one.type for one in step.node.children if not one.is_named), "")
        targets = step.node.children_by_field_name("destination")
        if targets:
            self._inspection.redirect(operator, fold(targets[0], self._script))
        if _behind(step.node) and not self._belongs_to_a_command(step):
            self._inspection.unclear(self._script.text_of(step.node))

    def _belongs_to_a_command(self, step: Step) -> bool:
        above = step.parent
        if above and above.node.type == "heredoc_redirect":
            above = above.parent
        if above is None or above.node.type == "command":
            return above is not None
        body = above.node.child_by_field_name("body")
        return body is not None and body.type == "command"

    def _expansion(self, step: Step) -> None:
        """`${x@P}` and `${!x}` run what a variable holds; `${PATH:=...}` sets one."""
        children = step.node.children
        kinds = [one.type for one in children]
        name = next((one for one in children if one.type == "variable_name"), None)
        if "@" in kinds and "P" in kinds:
            self._inspection.unclear(self._script.text_of(step.node))
        elif "!" in kinds[:2] and name is not None and not {"*", "@"} & set(kinds):
            self._signs.evaluates = True
        if name is not None and {":=", "="} & set(kinds):
            self._inspection.variable(self._script.text_of(name))

    def _test(self, step: Step) -> None:
        self._signs.evaluates = True

    def _string(self, step: Step) -> None:
        word = fold(step.node, self._script)
        if word.is_literal:
            self._signs.brackets |= "[" in word.text
            if _HIDDEN.search(word.text):
                self._signs.hidden = word.text

    def _subscript(self, step: Step) -> None:
        index = step.node.child_by_field_name("index")
        if index is None or index.type not in ("number", "word"):
            self._signs.subscripts = True
        self._signs.evaluates = True


def _hides_a_subscript(text: str) -> bool:
    opening = text.find("[")
    return opening >= 0 and _HIDDEN.search(text, opening) is not None


def _gives_code(option: str, letters: str) -> bool:
    if option.startswith("--"):
        return option in ("--eval", "--print")
    return option == "-" or bool(set(letters) & set(option[1:]))


def _words_of(children: Iterable[Node]) -> list[Node]:
    """The words of a command. The grammar counts those behind a redirection to the redirection."""
    words: list[Node] = []
    for child in children:
        if child.type == "command_name":
            words.append(child.children[0])
        elif child.type == "file_redirect":
            words += _behind(child)
        elif child.type == "heredoc_redirect":
            for part in child.children:
                if part.type == "file_redirect":
                    words += _behind(part)
            words += child.children_by_field_name("argument")
        elif child.type not in ("variable_assignment", "herestring_redirect"):
            words.append(child)
    return words


def _behind(redirect: Node) -> list[Node]:
    targets = redirect.children_by_field_name("destination")
    closes = any(child.type in (">&-", "<&-") for child in redirect.children)
    return targets if closes else targets[1:]


_HANDLERS = {
    "command": _Walk._command,
    "function_definition": _Walk._function,
    "variable_assignment": _Walk._assignment,
    "for_statement": _Walk._loop,
    "declaration_command": _Walk._declaration,
    "unset_command": _Walk._unset,
    "file_redirect": _Walk._redirect,
    "expansion": _Walk._expansion,
    "subscript": _Walk._subscript,
    "test_command": _Walk._test,
    "raw_string": _Walk._string,
    "string": _Walk._string,
    "ansi_c_string": _Walk._string,
}
