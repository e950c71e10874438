"""Steps about what a run is worth: counts, levels and status follow from the rest, and the rest agrees with itself.

For: `examining.py`. Not for: the rules themselves (`reports.levels`, `docs/levels.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from conformance.effort_sizes import EXAMPLES
from conformance.shortening import beginning
from reports.known_failures import problems
from reports.levels import count_outcomes, judge
from reports.rendering import REPORT
from reports.suite_options import DEFAULTS, SIMULATED_ONLY, VALUES, doubtful, read, shown
from reports.verification.findings import Examined, Finding, Note, Said, Step


def find_counts(examined: Examined) -> Iterator[Said]:
    """The numbers of clauses by outcome."""
    due = count_outcomes(examined.report.clauses)
    if examined.report.counts != due:
        for outcome in sorted({*due, *examined.report.counts}):
            has, must = examined.report.counts.get(outcome, 0), due.get(outcome, 0)
            if has != must or outcome not in due:
                yield Finding("counts", f"{REPORT}/counts/{outcome}", f"says {has}, and {must} clauses have this outcome")


def find_verdict(examined: Examined) -> Iterator[Said]:
    """Status, levels, what holds them back, and the first line."""
    found, due = examined.report.verdict, judge(examined.report)
    for name, reason in (
        ("status", "status"),
        ("caps", "caps"),
        ("levels", "levels"),
        ("certified", "certified"),
        ("should_not_met", "should"),
        ("headline", "headline"),
    ):
        has, must = getattr(found, name), getattr(due, name)
        if has != must:
            message = f"says {_short(has)}, and the rest of the report gives {_short(must)}"
            yield Finding.about(reason, f"{REPORT}/verdict/{name}", message)


def _short(value: object) -> str:
    return beginning(", ".join(_name(part) for part in value) if isinstance(value, tuple) else str(value), 250)


def _name(part: object) -> str:
    state = getattr(part, "state", None)
    name = getattr(part, "name", None) or getattr(part, "id", None) or str(part)
    return f"{name} {state}" if state else str(name)


def find_run(examined: Examined) -> Iterator[Said]:
    """How the run was made agrees with itself."""
    report = examined.report
    run = report.run
    try:
        datetime.strptime(run.started, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        yield Finding.about("time", f"{REPORT}/run/started", f"{run.started} is no time")
    if run.effort not in EXAMPLES:
        yield Finding.about("effort", f"{REPORT}/run/effort", f"{run.effort} is no effort; there are {', '.join(EXAMPLES)}")
    names = {check.name: check.outcome for check in report.checks}
    if run.checks != len(report.checks):
        yield Finding("run-checks", f"{REPORT}/run/checks", f"says {run.checks}; there are {len(report.checks)}")
    accounted = run.reported + len(run.deselected)
    if accounted > run.checks or (run.complete and accounted != run.checks):
        message = f"{run.reported} reported and {len(run.deselected)} left out of {run.checks} checks"
        yield Finding(
            "run-checks", f"{REPORT}/run/reported", f"{message}, of a run that is {'' if run.complete else 'not '}complete"
        )
    for name in run.deselected:
        if names.get(name, "not-run") != "not-run":
            yield Finding.about(
                "run-deselected", f"{REPORT}/run/deselected", f"{name} was left out, and has the outcome {names[name]}"
            )


def find_command_line(examined: Examined) -> Iterator[Said]:
    """The command line says what the report says, and nothing that takes checks away without holding the status back."""
    report = examined.report
    given = {option.name: option.value or "" for option in read(report.run.argv) if option.name}
    if "--certify" not in given:
        yield Finding("argv", f"{REPORT}/run/argv", "there is no --certify, without which the suite writes no package")
    for name, place in VALUES.items():
        said = given.get(name, DEFAULTS.get(name))
        if said is None or not place:
            continue
        part, _, field = place.partition("/")
        has = getattr(getattr(report, part), field)
        if not _is_same(said, has):
            line = f"the command line says {name}={said}" if name in given else f"the command line has no {name}"
            yield Finding.about("argv", f"{REPORT}/{place}", f"{line}, and the report says {has}")
    if report.run.effort in EXAMPLES and "--examples" not in given and report.run.examples != EXAMPLES[report.run.effort]:
        message = f"{report.run.examples} examples, where the effort {report.run.effort} has {EXAMPLES[report.run.effort]}"
        yield Finding("argv", f"{REPORT}/run/examples", message)
    for name in SIMULATED_ONLY:
        if given.get(name) and not report.backend.simulated:
            yield Finding("argv", f"{REPORT}/run/argv", f"{name}, which the suite refuses for a device that is not simulated")
    for option in doubtful(report.run.argv, left_out=bool(report.run.deselected)):
        text = f"{shown(option)} could have changed what ran"
        if report.verdict.status == "hardware":
            yield Finding.about("argv-disabling", f"{REPORT}/run/argv", f"{text}, and the status is hardware")
        else:
            yield Note(f"{text}; the status is {report.verdict.status}.")


def _is_same(given: str, has: object) -> bool:
    try:
        return int(given) == has if isinstance(has, int) else given.strip() == str(has).strip()
    except ValueError:
        return False


def find_exceptions(examined: Examined) -> Iterator[Said]:
    """Known failures and waivers come from a file, are in force, and cover what they say."""
    report, exceptions = examined.report, examined.report.exceptions
    named_on_line = any(option.name == "--known-failures" for option in read(report.run.argv))
    if exceptions is None:
        if named_on_line:
            yield Finding("exceptions", f"{REPORT}/exceptions", "the command line has --known-failures, and the report shows none")
        return
    if not named_on_line:
        yield Finding("exceptions", f"{REPORT}/exceptions", "shown, and the command line has no --known-failures")
    due = problems(report)
    for problem in due:
        if problem not in exceptions.problems:
            yield Finding.about("exception-hidden-problem", f"{REPORT}/exceptions", problem)
    for problem in exceptions.problems:
        if problem not in due:
            yield Finding.about("exception-no-problem", f"{REPORT}/exceptions/problems", f"this is none: {problem}")
    for problem in exceptions.problems:
        yield Note(f"The run failed on its known failures: {problem}")
    for entry in exceptions.entries:
        try:
            datetime.strptime(entry.expires, "%Y-%m-%d")
        except ValueError:
            yield Finding.about(
                "exception-date", f"{REPORT}/exceptions", f"{entry.clause} is excepted until {entry.expires}, no date"
            )
        yield Note(f"{entry.kind} {entry.clause}: {entry.reason} (until {entry.expires}, {entry.url})")


WORTH_STEPS = (
    Step("counts", "The counts are those of the clauses", find_counts),
    Step("verdict", "Status and levels follow from the rest of the report", find_verdict),
    Step("run", "What the report says of the run agrees with itself", find_run),
    Step("command-line", "The command line says the same and takes no checks away", find_command_line),
    Step("exceptions", "Known failures and waivers are in force and cover what they say", find_exceptions),
)
