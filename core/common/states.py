"""States, roles, purposes and kinds of jobs, targets, candidates, launches, trainings, devices, keys and events, for
database tables, services, messages and pages.
"""

from __future__ import annotations

from enum import Enum


class State(str, Enum):
    """Base class of states, roles and kinds, whose `value` is the stored and transmitted text."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, format_spec: str) -> str:
        return format(str(self.value), format_spec)


class JobState(State):
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    FAILED = "failed"


class TargetState(State):
    BASELINES = "baselines"
    """The reference models (the stock model at several depths) are being measured."""
    SEARCHING = "searching"
    REFINING = "refining"
    """The search has ended; candidates on the frontier with an uncertain latency are measured again."""
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


class CandidateState(State):
    WAITING = "waiting"
    MEASURED = "measured"
    OUT_OF_BOUNDS = "out_of_bounds"
    """The candidate is measured, but violates a limit of the job."""
    INFEASIBLE = "infeasible"
    """The device cannot run the candidate."""
    FAILED = "failed"
    CANCELLED = "cancelled"


class CandidateRole(State):
    BASELINE = "baseline"
    SEARCH = "search"


class MeasurementState(State):
    WANTED = "wanted"
    MEASURED = "measured"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


class Purpose(State):
    """Reason why a launch (one run of a model in a fresh process, to measure it) is needed."""

    FIRST = "first"
    REFINEMENT = "refinement"
    REPEAT = "repeat"
    """Launches differ by more than the device's scatter, or only one decides on a depth of the stock model."""
    ANCHOR = "anchor"
    """The small reference model is measured again to detect drift of the device's latency."""


class LaunchState(State):
    WANTED = "wanted"
    LEASED = "leased"
    REPORTED = "reported"
    """The agent has reported the launch's result; the report is not processed yet."""
    DONE = "done"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """No running job needs the launch any more."""
    IMPLAUSIBLE = "implausible"
    """The launch's result cannot be true; the result is stored but not used."""


class LaunchOutcome(State):
    """How a launch (one measuring run of a model) ended, as the agent reports."""

    DONE = "done"
    INFEASIBLE = "infeasible"
    """The device cannot run the model: out of memory, or over the time limit."""
    FAILED = "failed"


class ReportOutcome(State):
    """The server's response to an agent's report on a launch (one measuring run of a model)."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same report was received before."""
    CONFLICT = "conflict"
    """Another report completed this launch, or the launch was leased to another device."""
    UNKNOWN = "unknown"
    """The launch does not exist, because the launch's job was deleted."""
    CANCELLED = "cancelled"
    """The job no longer needs the launch; the measurement is stored anyway."""


class TrainingState(State):
    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    EVALUATING = "evaluating"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"


class TrainingKind(State):
    TRAINING = "training"
    SUPERNET = "supernet"
    IMPORT = "import"
    """A model with imported weights, stored as a training that is already done."""


class TrainingCommand(State):
    """The owner's latest request for a training."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class RunOutcome(State):
    """How one run of a training on a worker ended; a training may need several runs."""

    DONE = "done"
    STOPPED = "stopped"
    """The run was stopped; the training resumes from the latest checkpoint."""
    SMALLER = "smaller"
    """The run exceeded the memory; the training resumes with smaller batches."""
    INVALID = "invalid"
    """The request is wrong: another attempt would end the same way."""
    FAILED = "failed"


WAITS = "waits until another measurement on this host ends"
"""Conditions of a device whose launch waits for the host's lock."""


class DeviceState(State):
    ACTIVE = "active"
    DRAINING = "draining"
    """The device finishes the leased launches and gets no further launches."""
    REVOKED = "revoked"


class KeyRole(State):
    """Role of an API key. Admins may do everything, users act for their owner, viewers only read; agents have a
    device's credential.
    """

    ADMIN = "admin"
    USER = "user"
    VIEWER = "viewer"
    AGENT = "agent"


class Goal(State):
    """The goal of a search job."""

    FRONTIER = "frontier"
    BEST_WITHIN_LIMITS = "best_within_limits"


class JobEventKind(State):
    """Kinds of events of a job (`core.schemas.messages`)."""

    JOB_STATE = "job_state"
    TARGET_STATE = "target_state"
    GENERATION = "generation"
    CANDIDATE = "candidate"
    FRONTIER = "frontier"
    LAUNCH = "launch"


class TrainingEventKind(State):
    """Kinds of events of a training (`core.schemas.messages`)."""

    STATE = "state"
    METRIC = "metric"
    REWOUND = "rewound"
    CHECKPOINT = "checkpoint"
    NOTE = "note"
    EVALUATION = "evaluation"


ACTIVE_TARGETS = (TargetState.BASELINES, TargetState.SEARCHING, TargetState.REFINING)
LIVE_JOBS = (JobState.RUNNING, JobState.PAUSED)
ENDED_JOBS = (JobState.CANCELLED, JobState.FINISHED, JobState.FAILED)
MEASURED_CANDIDATES = (CandidateState.MEASURED, CandidateState.OUT_OF_BOUNDS)
LIVE_LAUNCHES = (LaunchState.WANTED, LaunchState.LEASED, LaunchState.REPORTED)
"""States of launches whose result is pending or not processed yet."""
FINISHED_LAUNCHES = (LaunchState.DONE, LaunchState.INFEASIBLE, LaunchState.FAILED, LaunchState.IMPLAUSIBLE)
LIVE_TRAININGS = (TrainingState.STARTING, TrainingState.TRAINING, TrainingState.EVALUATING)
ENDED_TRAININGS = (TrainingState.CANCELLED, TrainingState.DONE, TrainingState.FAILED)


class WorkKind(State):
    """Kinds of work that background workers do."""

    RESULTS = "results"
    """Processes the agents' reports on a target (a device and runtime of a job)."""
    ADVANCE = "advance"
    """Takes those next steps of a target that need no computation."""
    SEARCH = "search"
    """Computes and stores a target's next step."""
    LEARN = "learn"
    """Refits the scaling laws of an owner's trainings of one kind."""
