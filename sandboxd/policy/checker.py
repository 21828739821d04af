"""Checks commands against a policy."""

from __future__ import annotations

import hashlib
import math
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from sandboxd.policy import inner_languages, naming, running_options, wrappers
from sandboxd.policy.decision import ALLOWED, Decision, Finding, Rule, shown
from sandboxd.policy.profile import WRAPPERS, Policy, assigns_guarded, is_guarded
from sandboxd.policy.signs import INTEGERS, Signs
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
"""Scripts within one command: `bash -c` and the like."""
MAX_SCRIPT_CHARACTERS = 3 * MAX_SYNTAX_BYTES
"""Characters of all scripts within one command; of each, only what is parsed counts."""
MAX_DEPTH = 8
"""Nesting of wrappers and scripts."""
MAX_REMEMBERED = 1024
MAX_KEY_CHARACTERS = 512
"""Longest command that is remembered as it is, and not by its digest."""
QUICK_WORK = 1280
"""Work of a check that other commands may wait for, in bytes that are parsed. The worst text found
takes 2 ms."""
WORD_WORK = 16

_PROGRAM_DIRECTORIES = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
_RESERVED = wrappers.words_of(
    "! { } [[ ]] case do done elif else esac fi for function if in select then"
) | wrappers.words_of("until while")
_CODE_OPTIONS = {"python": "c", "python3": "c", "perl": "eE", "node": "ep", "ruby": "e", "php": "r"}
_EVALUATORS = naming.BUILTINS | wrappers.words_of("[ let test unset")
_HIDDEN = re.compile(r"\$\(|`|<\(")
_OPTION_READERS = running_options.PROGRAMS | wrappers.words_of(
    "awk find gawk mapfile mawk printf read readarray sed wait xargs"
)
_INTERPRETERS = wrappers.words_of(
    "awk bc egrep fgrep find gawk grep jq mawk nawk python python3 rg sed"
)
"""Programs whose arguments are programs or patterns; what they compute is not followed."""
_OFFSET = re.compile(r"\$\{[#!]?[\w@*]+(?:\[[^\]]*\])?:(?![-=?+])(.*)\}", re.DOTALL)
_INDEX = re.compile(r"(?:^|[\s(])\[([^\]]*)\]\+?=")
_FD_VARIABLE = re.compile(r"\{[A-Za-z_]\w*\[.*\}", re.DOTALL)
"""Names the variable that gets the number of a descriptor: {a[x]}>file."""
_WRAPPER_OPERAND = re.compile(r"[-+\d]|[A-Za-z_]\w*=")
_TAKERS = wrappers.words_of(
    "array case_statement command declaration_command expansion for_statement "
    "redirected_statement test_command variable_assignment"
)
_EXPANDED = re.compile(r"(?<!\\)[$`]")
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class CommandChecker:
    """Checks commands against one policy and caches the decisions."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._checks_nothing = policy.checks_nothing
        self._remembered: dict[str | bytes, Decision] = {}

    def check(self, command: str | Sequence[str], env: Iterable[str] = ()) -> Decision:
        """Decide whether a command line, or an argv, may run with these variables."""
        decision = self.check_quickly(command, env)
        if decision is None:
            decision = check(command, self.policy)
            self.remember(command, decision)
        return decision

    def check_quickly(
        self, command: str | Sequence[str], env: Iterable[str] = ()
    ) -> Decision | None:
        """The same if it is known or takes little time; otherwise None."""
        if self._checks_nothing:
            return ALLOWED
        if env and not (refusal := self.check_variables(env)).allowed:
            return refusal
        decision = self._remembered.get(_key(command)) if isinstance(command, str) else None
        if decision is not None:
            return decision
        try:
            decision = check(command, self.policy, max_work=QUICK_WORK)
        except TooMuchWork:
            return None if isinstance(command, str) else self._remembered.get(_key(command))
        if isinstance(command, str):
            self.remember(command, decision)
        return decision

    def check_variables(self, names: Iterable[str]) -> Decision:
        """Decide whether commands may run with these variables."""
        if self._checks_nothing or not any(map(is_guarded, names)):
            return ALLOWED
        return check((), self.policy, names)

    def remember(self, command: str | Sequence[str], decision: Decision) -> None:
        """Keep a decision for the next time."""
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[_key(command)] = decision


class TooMuchWork(Exception):
    """The check takes longer than it may here."""


def _key(command: str | Sequence[str]) -> str | bytes:
    if isinstance(command, str):
        if len(command) <= MAX_KEY_CHARACTERS:
            return command
        return hashlib.blake2b(command.encode(errors="surrogatepass"), digest_size=32).digest()
    words = "\0".join(("", *command))
    return hashlib.blake2b(words.encode(errors="surrogatepass"), digest_size=32).digest()


def check(
    command: str | Sequence[str],
    policy: Policy,
    env: Iterable[str] = (),
    *,
    max_work: int | None = None,
) -> Decision:
    """Decide whether a command line, or an argv, may run with these variables.

    TooMuchWork if that takes more than the given work.
    """
    if policy.checks_nothing:
        return ALLOWED
    inspection = _Inspection(policy, max_work)
    for name in env:
        inspection.variable(name)
    if isinstance(command, str):
        inspection.add_script(command, depth=0)
    else:
        inspection.charge(sum(map(len, command)) + WORD_WORK * len(command))
        inspection.words(_Call([Word(word) for word in command], is_direct=False))
    return inspection.decide()


class _Call(NamedTuple):
    """A command to check."""

    words: Sequence[Word]
    depth: int = 0
    is_direct: bool = True
    """Whether the shell itself looks the name up, so that it can be a function."""
    input_text: str | None = None
    """Standard input of the command, if it is part of the command line."""
    functions: frozenset[str] = frozenset()


class _Inspection:
    """Checks one command and everything that it runs."""

    def __init__(self, policy: Policy, max_work: int | None = None) -> None:
        self._policy = policy
        self._work_left = math.inf if max_work is None else max_work
        self._findings: list[Finding] = []
        self._scripts: deque[tuple[str, int]] = deque()
        self._script_count = 0
        self._script_characters = 0
        self.signs = Signs()

    def decide(self) -> Decision:
        while self._scripts and len(self._findings) < MAX_FINDINGS:
            self._script(*self._scripts.popleft())
        if self.signs.unclear:
            self._unclear(self.signs.unclear)
        self.variable(self.signs.assigned)
        if not self._findings:
            return ALLOWED
        return Decision(tuple(dict.fromkeys(self._findings))[:MAX_FINDINGS])

    def charge(self, work: int) -> None:
        """Announce work; TooMuchWork if it is more than is left."""
        self._work_left -= work
        if self._work_left < 0:
            raise TooMuchWork

    def add_script(self, text: str, *, depth: int) -> None:
        self._script_count += 1
        self._script_characters += min(len(text), MAX_SYNTAX_BYTES)
        if (
            depth > MAX_DEPTH
            or self._script_count > MAX_SCRIPTS
            or self._script_characters > MAX_SCRIPT_CHARACTERS
        ):
            self._add_under_allow_list(
                Rule.TOO_COMPLEX, text, "The command has too many nested commands.", "Split it."
            )
        else:
            self._scripts.append((text, depth))

    # --- what is found in a script ---

    def _script(self, text: str, depth: int) -> None:
        try:
            script = parse(text, self.charge)
        except NotUnderstood as error:
            self._add_under_allow_list(error.rule, text, error.why, error.instead)
            return
        _Walk(self, script, depth).run()

    def words(self, first: _Call) -> None:
        """Check a command and those that it wraps."""
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
            self._add_under_allow_list(
                Rule.DYNAMIC,
                name_word.text,
                f"Which command `{shown(name_word.text)}` stands for is known only when it runs.",
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
        if wrappers.only_describes_itself(name, args):
            return []
        try:
            self._arguments(name, args)
            inside = wrappers.inside(name, args)
        except wrappers.Unclear as unclear:
            self._add_under_allow_list(
                Rule.DYNAMIC,
                name,
                f"The effect of `{shown(str(unclear))}` on `{name}` is not clear.",
                unclear.instead,
            )
            return []
        return self._inside(inside, name, call) if inside else []

    def _inside(self, inside: wrappers.Inside, name: str, call: _Call) -> list[_Call]:
        for variable in inside.variables:
            self.variable(variable)
        if inside.unseen:
            self._unseen(
                name,
                f"`{name}` would run {shown(inside.unseen)}, which cannot be checked.",
                inside.instead,
            )
        scripts = list(inside.scripts)
        if inside.reads_input:
            if call.input_text is None:
                self._unseen(
                    name,
                    f"`{name}` would run its input, which cannot be checked.",
                    inside.instead,
                )
            else:
                scripts.append(Word(call.input_text))
        for script in scripts:
            if script.is_literal:
                self.add_script(script.text, depth=call.depth + 1)
            else:
                self._add_under_allow_list(
                    Rule.DYNAMIC,
                    name,
                    f"What `{name}` runs is known only at run time.",
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
            problem = f"`{shown(path)}` is not a known program; what it does cannot be checked."
            instead = "Run a script through its interpreter, as in `python3 SCRIPT`."
        else:
            problem = f"`{shown(name)}` is not on the allow-list."
            instead = self._policy.instead.get(name, "")
        allowed = f"Allowed are {self._policy.examples} and most builtins of the shell."
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
                    f"`{shown(line)}` matches `{shown(pattern)}`, which is forbidden here.",
                    "Use another command.",
                )
                return

    def _arguments(self, name: str, args: Sequence[Word]) -> None:
        if self._policy.allow is not None:
            if name in inner_languages.PROGRAMS:
                self.charge(sum(len(word.text) for word in args))
            problem = inner_languages.problem(name, args) or running_options.problem(name, args)
            if problem:
                self._add(Rule.UNSEEN, name, f"`{name}` may run commands here: {problem}.")
        if name in naming.BUILTINS:
            self._named_variables(name, args)
        if name == "let":
            self.expression(" ".join(word.text for word in args))
        if not self._policy.inline_code:
            self._inline_code(name, args)

    def _named_variables(self, name: str, args: Sequence[Word]) -> None:
        for word in naming.names(name, args):
            match = _NAME.match(word.text)
            if not word.is_literal or match is None or _hides_a_subscript(word.text):
                self._unclear(word.text)
            else:
                self.variable(match[0])
                self.expression(word.text)

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
                f"`{name}` may not take code from the command line here.",
                f"Write the code to a file and run `{name} FILE`.",
            )

    def variable(self, name: str) -> None:
        self.signs.evaluates |= name in INTEGERS
        if self._policy.allow is not None and is_guarded(name):
            self._add(
                Rule.GUARDED_VARIABLE,
                name,
                f"Setting `{shown(name)}` would change what commands mean.",
                "Do not set it.",
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
                "Write to another file in the workspace, and name it literally.",
            )
            return

    def expression(self, text: str) -> None:
        """An arithmetic expression, which may set variables."""
        self.signs.notice_evaluated(text)
        self.variable(assigns_guarded(text))

    def arithmetic(self, names: Iterable[str]) -> None:
        """For bash `((rm))` is arithmetic, for other shells a command in parentheses."""
        for name in self._policy.forbid.intersection(names):
            self._forbidden(name)

    def unclear(self, text: str) -> None:
        self._unclear(text)

    def _unclear(self, text: str) -> None:
        self._add_under_allow_list(
            Rule.UNPARSABLE,
            text,
            f"It is not clear how the shell interprets `{shown(text)}`.",
            "Write it in a simpler way.",
        )

    def _unseen(self, command: str, problem: str, instead: str) -> None:
        self._add_under_allow_list(Rule.UNSEEN, command, problem, instead)

    def _add_under_allow_list(self, rule: Rule, command: str, problem: str, instead: str) -> None:
        """Refuse only if there is an allow-list: without one, unknown commands may run."""
        if self._policy.allow is not None:
            self._add(rule, command, problem, instead)

    def _add(self, rule: Rule, command: str, problem: str, instead: str = "") -> None:
        self._findings.append(Finding(rule, shown(command), problem, instead))


class _Walk:
    """Visits every command of one script."""

    def __init__(self, inspection: _Inspection, script: Script, depth: int) -> None:
        self._inspection = inspection
        self._script = script
        self._depth = depth
        self._functions: set[str] = set()
        self._signs = inspection.signs
        self._run_names: dict[int, str] = {}
        """Names of commands by their nodes."""

    def run(self) -> None:
        for step in self._script.steps():
            handler = _HANDLERS.get(step.node.type)
            if handler is not None:
                handler(self, step)

    # --- handlers, by the type of the node ---

    def _command(self, step: Step) -> None:
        redirects = [node for node in step.node.children if node.type.endswith("_redirect")]
        parts = _words_of(step.node.children)
        if step.parent and step.parent.node.type == "redirected_statement":
            outer = [node for node in step.parent.node.children if node.type.endswith("_redirect")]
            redirects += outer
            after = _words_of(outer)
            parts += after
            if after and b"&>" in self._script.bytes_of(step.parent.node):
                # Other shells than bash see two commands in `ls &> x rm y`.
                self._inspection.unclear(self._script.text_of(step.parent.node))
        words = self._folded(parts)
        self._notice(words)
        for word in words:
            if not word.is_literal and _FD_VARIABLE.fullmatch(word.text):
                self._inspection.unclear(word.text)
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
                # Bash sees one word where the grammar sees two.
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
        if readers and any(text.startswith(('"$', "$")) for text in variables):
            self._signs.option_readers += readers
            if any(text.startswith(('"$(', '"`')) for text in variables):
                self._signs.option_values = True

    def _input_text(self, redirects: Sequence[Node]) -> str | None:
        inputs = [
            node
            for node in redirects
            if node.type != "file_redirect" or any(c.type in ("<", "<&") for c in node.children)
        ]
        if len(inputs) != 1 or any(node.type == "file_descriptor" for node in inputs[0].children):
            return None
        redirect = inputs[0]
        if redirect.type == "herestring_redirect":
            word = fold(redirect.children[-1], self._script)
            return word.text if word.is_literal else None
        if redirect.type == "heredoc_redirect":
            return self._heredoc_text(redirect)
        return None

    def _heredoc_text(self, redirect: Node) -> str | None:
        """The text, if it does not depend on variables."""
        text = self._heredoc_source(redirect)
        if self._is_quoted(redirect):
            return text
        return None if "$" in text or "`" in text else heredoc_text(text)

    def _is_quoted(self, redirect: Node) -> bool:
        starts = (child for child in redirect.children if child.type == "heredoc_start")
        return all(map(self._script.heredoc_is_quoted, starts))

    def _heredoc_source(self, redirect: Node) -> str:
        parts = {child.type: child for child in redirect.children}
        first, last = heredoc_span(
            self._script.source, parts["heredoc_start"], parts["heredoc_end"]
        )
        text = self._script.source[first:last].decode(errors="replace")
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
        self._signs.option_values |= word.is_literal and word.text.startswith("-")

    def _loop(self, step: Step) -> None:
        variable = step.node.child_by_field_name("variable")
        if variable is not None:
            self._inspection.variable(self._script.text_of(variable))
        for value in step.node.children_by_field_name("value"):
            self._value(value)

    def _declaration(self, step: Step) -> None:
        keyword, *children = step.node.children
        takes_lists = keyword.type != "export"
        for child in children:
            if child.type == "variable_assignment":
                self._declared_value(child, takes_lists=takes_lists)
                continue
            word = fold(child, self._script)
            if not word.is_literal:
                self._inspection.unclear(word.text)
            elif word.text.startswith(("-", "+")):
                self._declaration_option(word.text)
            else:
                self._declared_word(word.text)

    def _declaration_option(self, option: str) -> None:
        if "n" in option:
            self._inspection.unclear(option)
        self._signs.evaluates |= "i" in option
        self._signs.arrays |= "a" in option or "A" in option

    def _declared_word(self, text: str) -> None:
        match = _NAME.match(text)
        self._inspection.variable(match[0] if match else text)
        self._signs.evaluates |= "[" in text
        if "=(" in text:
            # Bash takes quoted text for a list, and expands it.
            self._inspection.unclear(text)

    def _declared_value(self, assignment: Node, *, takes_lists: bool) -> None:
        value = assignment.child_by_field_name("value")
        if value is None or value.type == "array" or not takes_lists:
            return
        word = fold(value, self._script)
        if word.is_literal and word.text.startswith("("):
            self._inspection.unclear(word.text)
        self._signs.compounds |= not word.is_literal

    def _unset(self, step: Step) -> None:
        self._functions.clear()
        self._declaration(step)

    def _redirect(self, step: Step) -> None:
        operator = next((node.type for node in step.node.children if not node.is_named), "")
        targets = step.node.children_by_field_name("destination")
        if targets:
            self._inspection.redirect(operator, fold(targets[0], self._script))
        if _after_target(step.node) and not self._belongs_to_a_command(step):
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
        kinds = [node.type for node in children]
        name = next((node for node in children if node.type == "variable_name"), None)
        if "@" in kinds and "P" in kinds:
            self._inspection.unclear(self._script.text_of(step.node))
        elif "!" in kinds[:2] and name is not None and not {"*", "@"} & set(kinds):
            self._signs.evaluates = True
        if name is not None and {":=", "="} & set(kinds):
            self._inspection.variable(self._script.text_of(name))
        offset = _OFFSET.match(self._script.text_of(step.node)) if ":" in kinds else None
        if offset is not None:
            self._inspection.expression(offset[1])

    def _array(self, step: Step) -> None:
        self._signs.arrays = True
        for index in _INDEX.findall(self._script.text_of(step.node)):
            self._inspection.expression(index)

    def _arithmetic(self, step: Step) -> None:
        self._inspection.expression(self._script.text_of(step.node).removeprefix("$"))

    def _c_style_for(self, step: Step) -> None:
        self._inspection.expression(self._script.text_of(step.node).partition("))")[0])

    def _double_parenthesis(self, step: Step) -> None:
        if step.parent:
            text = self._script.text_of(step.parent.node)
            self._inspection.expression(text)
            self._inspection.arithmetic(_NAME.findall(text))

    def _test(self, step: Step) -> None:
        self._signs.evaluates = True
        self._inspection.expression(self._script.text_of(step.node))

    def _string(self, step: Step) -> None:
        word = fold(step.node, self._script)
        if word.is_literal:
            text = word.text
        else:
            contents = (node for node in step.node.children if node.type == "string_content")
            text = "".join(re.sub(r"\\(.)", r"\1", self._script.text_of(node)) for node in contents)
        self._signs.notice_text(text, is_whole=self._is_for_an_interpreter(step))

    def _bare_word(self, step: Step) -> None:
        if not self._script.bytes_of(step.node).isalnum():
            text = fold(step.node, self._script).text
            self._signs.notice_text(text, is_whole=self._is_for_an_interpreter(step))

    def _heredoc_body(self, step: Step) -> None:
        """Text that a variable may hold: that of `read`, of a loop, or within a substitution."""
        redirect = step.parent
        if redirect is None or redirect.node.type != "heredoc_redirect":
            return
        taker = self._taker(redirect)
        is_read = taker is None or taker.type != "command" or self._runs(taker) in naming.BUILTINS
        if is_read or _is_in_substitution(redirect):
            text = self._heredoc_source(redirect.node)
            if not self._is_quoted(redirect.node):
                text = heredoc_text(_EXPANDED.sub("", text))
            self._signs.notice_text(text, is_whole=self._is_for_an_interpreter(redirect))

    def _is_for_an_interpreter(self, step: Step) -> bool:
        taker = self._taker(step)
        return taker is not None and taker.type == "command" and self._runs(taker) in _INTERPRETERS

    def _taker(self, step: Step) -> Node | None:
        """The command, assignment or other statement that gets a text."""
        above = step.parent
        while above is not None and above.node.type not in _TAKERS:
            above = above.parent
        if above is None:
            return None
        body = above.node.child_by_field_name("body")
        return body if above.node.type == "redirected_statement" and body else above.node

    def _runs(self, command: Node) -> str:
        """The name of a command, or of the one that it wraps."""
        if command.id not in self._run_names:  # each of its words asks for it
            self._run_names[command.id] = self._find_name(command)
        return self._run_names[command.id]

    def _find_name(self, command: Node) -> str:
        for node in _words_of(command.children):
            word = self._script.text_of(node)
            if word not in WRAPPERS and not _WRAPPER_OPERAND.match(word):
                return posixpath.basename(word)
        return ""

    def _subscript(self, step: Step) -> None:
        index = step.node.child_by_field_name("index")
        if index is None or index.type not in ("number", "word"):
            self._signs.subscripts = True
        self._signs.evaluates = True
        self._inspection.expression(self._script.text_of(step.node))


def _is_in_substitution(step: Step) -> bool:
    above = step.parent
    while above is not None and above.node.type not in _SUBSTITUTIONS:
        above = above.parent
    return above is not None


def _hides_a_subscript(text: str) -> bool:
    opening = text.find("[")
    return opening >= 0 and _HIDDEN.search(text, opening) is not None


def _gives_code(option: str, letters: str) -> bool:
    if option.startswith("--"):
        return option in ("--eval", "--print")
    return option == "-" or bool(set(letters) & set(option[1:]))


def _words_of(children: Iterable[Node]) -> list[Node]:
    """The words of a command. The grammar makes those after a redirection part of it."""
    words: list[Node] = []
    for child in children:
        if child.type == "command_name":
            words.append(child.children[0])
        elif child.type == "file_redirect":
            words += _after_target(child)
        elif child.type == "heredoc_redirect":
            for part in child.children:
                if part.type == "file_redirect":
                    words += _after_target(part)
            words += child.children_by_field_name("argument")
        elif child.type not in ("variable_assignment", "herestring_redirect"):
            words.append(child)
    return words


def _after_target(redirect: Node) -> list[Node]:
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
    "word": _Walk._bare_word,
    "heredoc_body": _Walk._heredoc_body,
    "array": _Walk._array,
    "arithmetic_expansion": _Walk._arithmetic,
    "c_style_for_statement": _Walk._c_style_for,
    "((": _Walk._double_parenthesis,
}
