"""The pytest plugin that makes a folder of tests a conformance run.

For: pytest's hooks, in the order of a run: options, the backend, gating, recording, the summary. Not for: what those do; each has its
module. Loaded by `conformance/conftest.py` in a checkout and by `python -m conformance` anywhere; installing the package loads nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conformance import efforts, forked_examples, hook_specifications, isolation, summary, workers
from conformance.backend_under_test import BackendUnderTest
from conformance.errors import ConformanceError, OptionError
from conformance.options import add_options, read_options
from conformance.outcomes import Outcome
from conformance.ranks.torchrun_pool import LaunchedRun
from conformance.session import SuiteSession

if TYPE_CHECKING:
    from conformance.stream_runs import StreamRuns

SESSION = pytest.StashKey[SuiteSession]()
_REPORTS_PLUGIN = "reports.pytest_plugin"
_CHECK_TIMEOUT = 300.0  # seconds; a check that hangs is named by pytest-timeout
_SHOWN_AS = {  # outcome: (category, letter, word) in pytest's progress
    Outcome.UNSUPPORTED: ("unsupported", "u", "UNSUPPORTED"),
    Outcome.NOT_RUN: ("not run", "n", "NOT RUN"),
    Outcome.NOT_CHECKABLE: ("not checkable", "c", "NOT CHECKABLE"),
    Outcome.FLAKY: ("failed", "F", "FLAKY"),
    Outcome.HARNESS_ERROR: ("error", "E", "HARNESS ERROR"),
}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare our options, and let the reports declare theirs."""
    add_options(parser)
    pluginmanager.import_plugin(_REPORTS_PLUGIN)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Hooks that other plugins may implement."""
    pluginmanager.add_hookspecs(hook_specifications)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Check the options and prepare the backend, before anything else: whether to start workers depends on it. Replay a program, where
    one is given, and be done."""
    if config.option.help or getattr(config.option, "version", 0):
        return None
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(efforts.new_seed())
    try:
        options = read_options(config)
        efforts.load_profile(options.examples, shrink=options.shrink)
        efforts.draw_the_same_everywhere()
        launched = next((plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, LaunchedRun)), None)
        if launched is not None and getattr(config.option, "numprocesses", None):
            raise OptionError("-n: torchrun has started the ranks, which workers could not share; leave the option out")
        session = SuiteSession(options, collect_only=config.option.collectonly, launched=launched)
        if options.replay_program:
            try:
                from conformance.replay import replay

                return replay(session.backend, options.replay_program)
            finally:
                session.close()
    except (ConformanceError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    if getattr(config.option, "timeout", None) is None:
        config.option.timeout = _CHECK_TIMEOUT
    config.stash[SESSION] = session
    if session.wants_isolation and config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        isolation.start_workers(config)
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; open the journal of a worker, or prepare several; have SIGTERM end a run as Ctrl-C does, with nothing left
    behind."""
    config.addinivalue_line("markers", "clause(*ids, tier, examples, shrinks, long): the contract clauses that a check covers")
    if SESSION in config.stash:
        session = config.stash[SESSION]
        session.journal = isolation.Journal.of_worker(config)
        if not session.collect_only:
            workers.prepare(config, simulated=session.backend.is_fake)
    if not hasattr(config, "workerinput"):
        config.add_cleanup(_end_on_sigterm_as_on_an_interrupt().close)


def _end_on_sigterm_as_on_an_interrupt() -> contextlib.ExitStack:
    """Until what is returned is closed; where the process has a handler of its own, that one stays."""
    until_the_end = contextlib.ExitStack()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        until_the_end.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL)
    return until_the_end


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the child processes and the ranks."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()
        isolation.close(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the run."""
    session = config.stash.get(SESSION, None)
    return [] if session is None else summary.header(session)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Let `-k` find checks by clause, scale the number of examples, and order the checks."""
    session = config.stash[SESSION]
    for item in items:
        marker = item.get_closest_marker("clause")
        if marker is None:
            continue
        item.extra_keyword_matches.update(marker.args)
        session.collect(item.nodeid, marker.args, marker.kwargs["tier"])
        efforts.scale_examples(_function(item), marker.kwargs["examples"], shrinks=marker.kwargs["shrinks"])
    items[:] = workers.long_checks_first(items, config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the zygote and the ranks early, while the first checks run."""
    suite = session.config.stash[SESSION]
    suite.selected = {item.nodeid for item in session.items if item.nodeid in suite.collected}
    if not suite.collect_only and session.items:
        suite.warm_up()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a check that cannot give a verdict here."""
    session = item.config.stash[SESSION]
    if item.nodeid in session.collected:
        session.gate(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Count the examples of a property."""
    session = item.config.stash[SESSION]
    with contextlib.ExitStack() as around:
        if session.journal is not None:
            around.enter_context(session.journal.watching())
        if session.options.isolate == "examples":
            around.enter_context(forked_examples.forking(_function(item)))
        around.enter_context(session.counter_of(item.nodeid).counting(_function(item), session.journal))
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the check's record to the report of the phase that decided it."""
    report = yield
    if item.nodeid in item.config.stash[SESSION].collected and (call.when == "call" or call.excinfo is not None):
        session = item.config.stash[SESSION]
        error = None if call.excinfo is None else call.excinfo.value
        # An attribute of plain data travels with the report from a worker to the controller.
        vars(report)["conformance"] = session.record(item.nodeid, error, call.when, call.duration).as_data()
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show an outcome that is neither pass nor fail as what it is."""
    record = getattr(report, "conformance", None)
    return None if record is None else _SHOWN_AS.get(Outcome(record["outcome"]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a pytest-xdist worker: tell the controller what was collected."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and SESSION in session.config.stash:
        output["conformance_collected"] = session.config.stash[SESSION].collected


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In pytest-xdist's controller: prepare a worker."""
    isolation.tell_worker(node)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - pytest-xdist's signature
    """In the controller: what a worker collected."""
    collected = getattr(node, "workeroutput", {}).get("conformance_collected", {})
    node.config.stash[SESSION].collected.update(collected)


class _Listener:
    """Gathers the records, from this process or from workers; registered where the summary is made."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:  # noqa: ARG002 - pytest-xdist's signature
        """Learn from a worker which checks the command line left in; each finds the same."""
        self._config.stash[SESSION].selected = set(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record of a check; a worker that crashed leaves a failure without one."""
        session = self._config.stash[SESSION]
        record = getattr(report, "conformance", None)
        if record is not None:
            session.keep(record)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Remember how a worker ended, in pytest-xdist's controller."""
        crash = isolation.crash_of(self._config, report.node)
        report.longrepr = f"{crashitem}: {crash}"
        self._config.stash[SESSION].keep_crash(crashitem, crash)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Assemble the results and hand them to whoever wants them."""
        session = self._config.stash[SESSION]
        if session.collect_only:
            return
        session.finish(interrupted=exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))
        self._config.hook.pytest_conformance_results(config=self._config, results=session.results)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary by area."""
        session = self._config.stash[SESSION]
        if session.results is not None:
            summary.write(terminalreporter, session)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Only the controller, or a run without workers, gathers and sums up."""
    if not hasattr(session.config, "workerinput") and SESSION in session.config.stash:
        session.config.pluginmanager.register(_Listener(session.config), "conformance-listener")


def _function(item: pytest.Item) -> Any:
    return getattr(item, "obj", None)


@pytest.fixture
def stream_runs(backend: BackendUnderTest) -> Iterator[StreamRuns]:
    """Runs stream programs on the backend, on a simulated machine in several orders."""
    from conformance.stream_runs import StreamRuns

    yield StreamRuns(backend)
    backend.restart()


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> BackendUnderTest:
    """The backend under test."""
    return request.config.stash[SESSION].backend
