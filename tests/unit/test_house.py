"""The house keeps its order: few files at the door, names that tell, words in one place."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import verticopula
import verticopula.auditing
import verticopula.datasets
from verticopula.cli.check_command import check
from verticopula.cli.lead_commands import submit
from verticopula.cli.run_command import run
from verticopula.cli.shared_options import StudyOptions
from verticopula.errors import SchemaError
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.schema.federation import Federation
from verticopula.schema.methods import METHODS, PRINTED_VARIANT, RAW_REGRESSION
from verticopula.schema.raw_regression_settings import RawRegressionSettings
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.bridge import STRONGEST
from verticopula.study.fitted_study import FittedStudy

HOME = Path(verticopula.__file__).parent
PUBLIC = (verticopula, verticopula.auditing, verticopula.datasets)
ROOT = Path(__file__).parents[2]
FILES = sorted(HOME.rglob("*.py"))
ROOMS = sorted(path.parent for path in FILES if path.name == "__init__.py" and path.parent != HOME)
NAMES_OF_METHODS = {*METHODS, RAW_REGRESSION}
PRIVATE_WORDS = {
    *("desk", "letters", "post", "station", "presumed", "rehearsal", "released", "priced", "certainty"),
    *("measurement", "measurements", "rehearsals", "rehearse"),
    *("stranger", "strangers", "settle", "settled", "pulls", "pulling", "pushes"),
}
# `words` and `texts` are not among them: the first are a variable's sentences or 64 bits of a stream, the second cells.
STORED_NAMES = {"strict/"}  # of records in a party's vault: they stay, whatever the method is called
OF_BROWSERS = {"SameSite=Strict"}  # of a cookie
STORED_BY_METHOD = {"study/saved_study.py", "protocol/party/strict_handler.py"}  # what a file or a message is called
CALLED_BY_LIBRARIES = {"Link.state_change", "Link.process_message", "_Unregistered.process_message"}
CALLED_BY_LIBRARIES |= {"HealthServer.handle_error", "_HealthHandler.log_message"}
READ_BY_USERS = {
    "Synthesizer.margins_",
    "Synthesizer.n_subjects_",
    "CheckedModel.model_validate_json",
    "SmeTruth.relevant",
}  # and no page shows them
COMMANDS_OF_THE_SAME_NAME = {"forecast", "provision"}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path.relative_to(HOME), ast.parse(path.read_text("utf-8"))) for path in FILES]


def test_at_most_eight_files_lie_in_the_root() -> None:
    assert len(list(HOME.glob("*.py"))) <= 8


def test_no_two_files_share_a_name() -> None:
    named = Counter(path.name for path in FILES if not path.name.startswith("__"))
    assert [name for name, count in named.items() if count > 1] == []


def test_no_two_classes_share_a_name() -> None:
    found = Counter(node.name for _, tree in trees() for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in found.items() if count > 1] == []
    aliases = {name for _, tree in trees() for name, _ in assigned(tree)}
    assert aliases & set(found) == set()


def test_no_two_classes_of_benchmarks_and_experiments_share_a_name() -> None:
    """Both use what `reporting` has, so that counts, too."""
    paths = [path for folder in ("benchmarks", "experiments", "reporting") for path in (ROOT / folder).rglob("*.py")]
    bodies = [ast.parse(path.read_text("utf-8")).body for path in paths]
    found = Counter(node.name for body in bodies for node in body if isinstance(node, ast.ClassDef))
    assert len(found) > 50
    assert [name for name, count in found.items() if count > 1] == []


def test_no_two_public_functions_share_a_name() -> None:
    """A command may have the name of the function that it calls."""
    found = Counter(
        node.name
        for _, tree in trees()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and public(node.name)
    )
    assert {name for name, count in found.items() if count > 1} == COMMANDS_OF_THE_SAME_NAME


def test_no_two_public_constants_share_a_name() -> None:
    """An abbreviation of a type may be written again where it is needed, but must mean the same."""
    found: dict[str, list[str]] = {}
    for _, tree in trees():
        for name, value in assigned(tree):
            if public(name) and name != "logger":
                found.setdefault(name, []).append(value)
    assert [name for name, values in found.items() if name.isupper() and len(values) > 1] == []
    assert [name for name, values in found.items() if len(set(values)) > 1] == []


def test_no_constant_stands_in_two_files_with_the_same_value() -> None:
    """A private name may come back with another value and meaning: it is of its file."""
    found = Counter(
        (name, value)
        for _, tree in trees()
        for name, value in assigned(tree)
        if name.isupper() and value != "np.uint64"  # an abbreviation of a type
    )
    assert [name for (name, _), count in found.items() if count > 1] == []


def test_no_number_with_several_digits_has_two_public_names() -> None:
    """A short or round one (0.5, 10_000) may well mean two things."""
    found: dict[float, set[str]] = {}
    for _, tree in trees():
        for name, value in assigned(tree):
            if name.isupper() and public(name) and re.fullmatch(r"[1-9]\d*[1-9]\d*[1-9]0*(\.0)?", value):
                found.setdefault(float(value), set()).add(name)
    assert [names for names in found.values() if len(names) > 1] == []


def test_the_strongest_correlation_is_written_once() -> None:
    """`bridge.STRONGEST`; the report cuts axes at the same share of people, which is something else."""
    found = {
        str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value == STRONGEST
    }
    assert found == {"stats/bridge.py", "report/margin_figures.py"}


def test_there_is_one_record_of_a_warning() -> None:
    """Everything else of that name is a category of Python's, for `warnings.warn`."""
    found = {
        node.name
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and "Warning" in node.name
        and [ast.unparse(base) for base in node.bases] != ["UserWarning"]
    }
    assert found - {"WarningThresholds"} == {"StudyWarning"}


def test_every_warning_has_one_source() -> None:
    """A code is made in one file, so that text, page and Python cannot have conditions or words of their own."""
    sources: dict[str, set[Path]] = {}
    for path, tree in trees():
        constants = dict(assigned(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "StudyWarning":
                code = ast.unparse(node.args[0])
                sources.setdefault(constants.get(code, code), set()).add(path)
    assert len(sources) > 30
    assert {code: files for code, files in sources.items() if len(files) > 1} == {}


def test_a_study_is_run_or_repeated_in_one_place_in_this_process_and_one_for_a_network() -> None:
    calling = {
        str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "find_protocol"
    }
    assert calling == {"simulate/in_process.py", "protocol/study_rounds.py"}


def public(name: str) -> bool:
    return not name.startswith("_")


def assigned(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a module assigns, and the expressions."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(name, ast.Name):
                        yield name.id, ast.unparse(node.value)


def test_nothing_lies_there_that_no_command_and_no_export_reaches() -> None:
    """By names: a function that only tests call is found, unless something in use has its name."""
    bodies: dict[str, list[ast.AST]] = {}
    waiting = {"main", *verticopula.__all__, "__getattr__", "__dir__"}  # Python calls the last two
    for _, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                bodies.setdefault(node.name, []).append(node)
                waiting |= {name for decorator in node.decorator_list for name in used_in(decorator)}
                if any("command" in ast.unparse(d) or "callback" in ast.unparse(d) for d in node.decorator_list):
                    waiting.add(node.name)
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                waiting |= used_in(node)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in reached:
            reached.add(name)
            waiting |= {used for body in bodies[name] for used in used_in(body)}
    assert sorted(set(bodies) - reached) == []


def test_no_constant_and_no_abbreviation_is_read_by_tests_only() -> None:
    """Read where it stands, or imported from there by name."""
    imported = {
        (node.module, alias.name)
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    unread = [
        f"{path}: {name}"
        for path, tree in trees()
        for name, _ in assigned(tree)
        if not name.startswith("__") and name not in read_in(tree) and (module_of(path), name) not in imported
    ]
    assert unread == []


def read_in(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def module_of(path: Path) -> str:
    return ".".join(["verticopula", *path.with_suffix("").parts]).removesuffix(".__init__")


def test_no_method_and_no_field_is_read_by_tests_only() -> None:
    """By names, like the rule above. What only users read stands in some page, as code."""
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    code = re.findall(r"```.*?```|`[^`\n]*`", pages, flags=re.DOTALL)
    assets = (path for room in ("report", "console") for path in (HOME / room / "assets").iterdir())
    templates = [path.read_text("utf-8") for path in assets]
    read = set(re.findall(r"\w+", " ".join([*code, *templates])))
    for _, tree in trees():
        loaded = (node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load))
        read |= {name for node in loaded if isinstance(node, ast.expr) for name in used_in(node)}
    unread = {
        f"{kind.name}.{name}"
        for _, tree in trees()
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for name in members_of(kind)
        if public(name) and name not in read
    }
    assert unread == CALLED_BY_LIBRARIES | READ_BY_USERS


def members_of(kind: ast.ClassDef) -> Iterator[str]:
    for node in kind.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def used_in(node: ast.AST) -> set[str]:
    """Names and attributes, and strings that are names."""
    found = {name for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute) for name in names_of(part)}
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return found | {word for text in texts if re.fullmatch(r"[\w.:]+", text) for word in re.split(r"[.:]", text)}


def test_no_name_is_a_private_word_of_this_project() -> None:
    """In place of the field's own: handler, message, session, assumptions, simulation, release, price, posterior."""
    found = {
        f"{path}: {name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        for name in names_of(node)
        if not name.startswith("__") and PRIVATE_WORDS & words_of(name)
    }
    assert found == set()


def test_functions_named_after_words_give_64_bits_each() -> None:
    found = {
        str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "words" in words_of(node.name)
    }
    assert found == {"matching/keyed_hashes.py", "privacy/coins.py", "privacy/noise.py"}


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [getattr(node, field) for field in ("id", "attr", "arg") if isinstance(getattr(node, field, None), str)]


def test_method_names_stand_in_one_file_only() -> None:
    """In no string that anybody is shown: neither a message, nor a command's help, which is its docstring."""
    names = "|".join(map(re.escape, sorted({*NAMES_OF_METHODS, PRINTED_VARIANT})))
    named = re.compile(rf"(?<![\w-])({names})(?![\w-])", re.IGNORECASE)
    others = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if path != Path("schema/methods.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and named.search(node.value)
        if not (is_docstring(node, tree) and path.parts[0] != "cli") and node.value not in STORED_NAMES | OF_BROWSERS
    ]
    assert others == []


def test_no_argument_has_a_method_of_its_own_as_default() -> None:
    """Who names none gets `DEFAULT_METHOD`, everywhere."""
    records = {"VCDS", "REFINED", "EVCDS", "IEVCDS", "STRICT"}
    found = [
        f"{path}:{default.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults))
        if isinstance(default, ast.Attribute) and ast.unparse(default.value) in records
    ]
    assert found == []


def test_no_branch_asks_for_a_method_by_its_name() -> None:
    """It reads a field of the method's record, so that a method of the same kind takes the same branch."""
    named = {"STRICT.name", "VCDS.name", "REFINED.name", "EVCDS.name", "IEVCDS.name"}
    found = {
        f"{path}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(name in ast.unparse(node) for name in named)
    }
    assert {place.split(":")[0] for place in found} <= STORED_BY_METHOD


def is_docstring(node: ast.Constant, tree: ast.Module) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [parent.body for parent in ast.walk(tree) if isinstance(parent, kinds)]
    return any(isinstance(body[0], ast.Expr) and body[0].value is node for body in bodies if body)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(HOME)))
def test_every_room_says_what_lives_there_who_may_import_it_and_what_to_read_first(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    lines = [line for line in said.splitlines() if line]
    assert len(lines) == 3
    assert "import" in said
    assert "Read " in said


@pytest.mark.parametrize("room", [room for room in ROOMS if room.parent == HOME], ids=lambda room: room.name)
def test_every_room_imports_what_it_says_and_no_more(room: Path) -> None:
    """Contracts allow all lower rooms; a room may promise less."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    rooms = project["tool"]["importlinter"]["contracts"][0]["layers"]  # the highest first
    about = " ".join((ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or "").split())
    promise = re.search(r"(?:may import|imports) ([^;.]*)", about)
    assert promise is not None
    named = [one for one in rooms if re.search(rf"\b{one}\b", promise[1])]
    if "everything" in promise[1]:
        allowed = set(rooms)
    elif "only" in promise[1]:
        allowed = set(named)
    else:
        assert "lower rooms" in promise[1]
        allowed = set(rooms[rooms.index(named[0]) :])
    assert imported_by(room) <= allowed


def imported_by(room: Path) -> set[str]:
    """Other rooms that a room's files name in their imports."""
    found = {
        node.module.split(".")[1]
        for path, tree in trees()
        if path.parts[0] == room.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("verticopula.")
    }
    return found - {room.name}


def test_the_architecture_page_is_short_and_names_every_room() -> None:
    page = (ROOT / "docs/development/architecture.md").read_text("utf-8")
    assert len(page.splitlines()) <= 150
    assert [room.name for room in ROOMS if room.parent == HOME and f"  {room.name}/" not in page] == []


def test_the_glossary_has_at_most_thirty_terms() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text("utf-8")
    terms = re.findall(r"^\*\*(.+?)\*\*", page, flags=re.MULTILINE)
    assert 10 <= len(terms) <= 30
    assert terms == sorted(terms, key=str.lower)


def test_everything_public_describes_its_parameters() -> None:
    """Public is what the package exports, and every class that users are given or asked for by that."""
    found = dict(public_functions())
    assert {"Synthesizer.fit", "PrivacyStatement.epsilon", "Ledger.append", "Forecast.row", "forecast"} <= set(found)
    bare = [
        name
        for name, function in found.items()
        if set(inspect.signature(function).parameters) - {"self", "cls"}
        and "Parameters\n" not in (inspect.getdoc(function) or "")
    ]
    assert bare == []


def test_every_public_class_describes_what_it_is_made_of() -> None:
    """Each argument of its constructor, or field, has an entry under Parameters or Attributes.

    Public is what a package exports, and what the page of the Python reference lists.
    """
    exported = [getattr(room, name) for room in PUBLIC for name in room.__all__]
    page = (ROOT / "docs/reference/python.md").read_text("utf-8")
    listed = [pydoc.locate(name) for name in re.findall(r"autoclass:: (\S+)", page)]
    found = {kind for kind in (*exported, *listed) if isinstance(kind, type)}
    assert {Federation, SchemaError, FittedStudy} <= found
    bare = [f"{kind.__name__}.{made}" for kind in found for made in made_of(kind) if made not in entries_of(kind)]
    assert sorted(bare) == []


def made_of(kind: type) -> list[str]:
    """Names of what a class is constructed with, without those that users never pass."""
    if "__init__" not in vars(kind) and "__new__" not in vars(kind) and not hasattr(kind, "model_fields"):
        return []
    fields = getattr(kind, "model_fields", None) or inspect.signature(kind).parameters
    return [name for name in fields if public(name) and name not in ("args", "kwargs")]


def entries_of(kind: type) -> set[str]:
    """What stands before a colon under Parameters or Attributes."""
    _, *sections = re.split(r"^(?:Parameters|Attributes)\n-+\n", inspect.getdoc(kind) or "", flags=re.MULTILINE)
    entries = re.findall(r"^(\w+(?:, \w+)*) :", "\n".join(sections), flags=re.MULTILINE)
    return {name for entry in entries for name in entry.split(", ")}


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    for name, found in public_objects():
        if isinstance(found, type):
            yield from own_functions(found).items()
        elif callable(found):
            yield name, found


def public_objects() -> Iterator[tuple[str, object]]:
    """What `__all__` names, also of audits and example studies; the classes in their signatures, and so on."""
    waiting = [(name, getattr(room, name)) for room in PUBLIC for name in room.__all__]
    seen: list[object] = []
    while waiting:
        name, found = waiting.pop()
        if found in seen:
            continue
        seen.append(found)
        yield name, found
        members = own_functions(found) if isinstance(found, type) else {name: found} if callable(found) else {}
        for function in members.values():
            waiting += [(kind.__name__, kind) for hint in hints_of(function) for kind in classes_in(hint)]


def own_functions(kind: type) -> dict[str, Callable[..., object]]:
    found = {}
    for name, member in inspect.getmembers_static(kind):
        member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        if public(name) and inspect.isfunction(member) and member.__module__.startswith("verticopula"):
            found[f"{kind.__name__}.{name}"] = member
    return found


def hints_of(function: Callable[..., object]) -> list[object]:
    """Of parameters and result; libraries that are imported for their types only are left out."""
    absent = {"pd": types.SimpleNamespace(DataFrame=object, Series=object), "go": types.SimpleNamespace(Figure=object)}
    # A study's settings are read for `--help`, so they import the federation for its type only.
    known = {**absent, "Federation": verticopula.Federation}
    return list(typing.get_type_hints(function, localns=known).values())


def classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("verticopula"):
        yield hint
    for part in typing.get_args(hint):
        yield from classes_in(part)


HELP = """import contextlib, io; from verticopula.cli.app import main
sys.argv = ["verticopula", *{}]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()
"""


def test_importing_the_package_and_asking_for_help_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    heavy = ("numpy", "scipy", "sklearn", "plotly", "polars", "pandas", "nvflare", "numba")
    pages = ("jinja2", "plotly", "sklearn.tree", "sklearn.linear_model", "verticopula.report", "verticopula.network")
    unwanted = {
        "import verticopula": heavy,
        "import verticopula.cli.app": heavy,
        HELP.format(["--help"]): heavy,
        HELP.format(["run", "--help"]): heavy,
        "from verticopula import Federation, Policy": ("scipy.stats", "pandas", *pages),
        "from verticopula import Synthesizer": pages,
    }
    for statement, modules in unwanted.items():
        code = f"import sys; {statement}\nprint([m for m in {modules!r} if m in sys.modules])"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert said.strip() == "[]", statement


def test_help_takes_less_than_half_a_second_of_processor_time() -> None:
    import subprocess
    import sys

    code = (
        "import sys, time; sys.argv = ['verticopula', '--help']\n"
        "from verticopula.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[-1]) < 0.5


# ---- one description of a study ------------------------------------------------------------------

# What is signed and charged is in numbers: a budget with every default filled in, and the proposal that repeats it.
IN_NUMBERS = {"StudyBudget", "StudyProposal"}
AS_TYPED = {"StudyOptions"}  # of all commands: None for what was not said; help and defaults are the settings' own
# scikit-learn's word, for Python's users
SAYS_RANDOM_STATE = {"estimators", "datasets", "auditing/study_audit.py", "forecasting/forecast.py"}
SAYS_RANDOM_STATE |= {"report/propensity_check.py"}  # which calls scikit-learn


def test_no_other_record_repeats_the_settings_of_a_study() -> None:
    """Who needs them holds a `StudySettings`."""
    names = {one.name for one in fields(StudySettings)} | {"random_state", "as_printed"}
    found = {
        kind.name
        for path, tree in trees()
        if path != Path("schema/study_settings.py")
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef) and len(names & set(members_of(kind))) > 4
    }
    assert found == IN_NUMBERS | AS_TYPED


def test_a_synthesizer_has_the_settings_of_a_study_with_their_defaults() -> None:
    given = {name: one.default for name, one in inspect.signature(Synthesizer).parameters.items()}
    wanted = StudySettings(method="").to_arguments()
    assert given.pop("federation") is inspect.Parameter.empty
    assert (given.pop("engine"), given.pop("engine_without_tls")) == ("local", False)  # where, and not what
    assert given == {**wanted, "method": None}  # who names none gets `DEFAULT_METHOD`


def test_every_setting_is_an_option_once_for_all_commands() -> None:
    """Commands share the options of `shared_options.py`, which take their help from the settings."""
    names = {one.name for record in (StudySettings, RawRegressionSettings) for one in fields(record)} | {"as_printed"}
    own = {
        f"{path.stem}: {argument.arg}"
        for path, tree in trees()
        if path.parts[0] == "cli" and path.stem != "forecast_command"  # which takes several units and methods
        for command in tree.body
        if isinstance(command, ast.FunctionDef) and public(command.name)
        for argument in (*command.args.args, *command.args.kwonlyargs)
        if argument.arg in names and "typer" in ast.unparse(argument.annotation or argument)
    }
    # Of the audit's own noise, and of the delta that a ledger is counted at.
    assert own == {"audit_commands: seed", "ledger_commands: delta"}
    for command in (run, submit):
        assert {one.name for one in fields(StudySettings)} - {"variant"} <= set(inspect.signature(command).parameters)


def test_no_command_takes_more_arguments_than_a_reader_can_hold() -> None:
    """What belongs together is a record of options; `with_options` shows its fields to the command line."""
    found = {
        command.name: len(arguments)
        for path, tree in trees()
        if path.parts[0] == "cli"
        for command in tree.body
        if isinstance(command, ast.FunctionDef)
        if len(arguments := (*command.args.args, *command.args.kwonlyargs)) > 16
    }
    assert found == {}


def test_check_takes_every_setting_of_run() -> None:
    """So that what is checked is what will be run."""
    assert {one.name for one in fields(StudyOptions)} <= set(inspect.signature(check).parameters)
    assert {one.name for one in fields(StudyOptions)} <= set(inspect.signature(run).parameters)


def test_a_seed_is_called_random_state_where_users_of_scikit_learn_look_only() -> None:
    found = {
        str(path) if str(path) in SAYS_RANDOM_STATE else path.parts[0]
        for path, tree in trees()
        for node in ast.walk(tree)
        if "random_state" in names_of(node)
    }
    assert found == SAYS_RANDOM_STATE
