"""All tables, imported in one place so that the metadata is complete."""

from edgefront.core.store.tables.access import AccessVersion, ApiKey, Device, EnrolmentToken, WebSession
from edgefront.core.store.tables.base import Base, new_id, random_ids
from edgefront.core.store.tables.candidate import Artifact, Candidate
from edgefront.core.store.tables.job import Event, Generation, Job, ServedQueue, Target, WorkItem
from edgefront.core.store.tables.measurement import Launch, Lease, Measurement
from edgefront.core.store.tables.training import Evaluation, OwnerLaw, Training, TrainingEvent, TrainingMetric

__all__ = [
    "AccessVersion",
    "ApiKey",
    "Artifact",
    "Base",
    "Candidate",
    "Device",
    "EnrolmentToken",
    "Evaluation",
    "Event",
    "Generation",
    "Job",
    "Launch",
    "Lease",
    "Measurement",
    "OwnerLaw",
    "ServedQueue",
    "Target",
    "Training",
    "TrainingEvent",
    "TrainingMetric",
    "WebSession",
    "WorkItem",
    "new_id",
    "random_ids",
]
