"""Examples for the OpenAPI document, made from the wire models themselves so that they cannot be wrong."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pydantic import BaseModel

from edgefront.core.cost.costs import costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.quality.shipped import law_named
from edgefront.core.quality.stored import summary
from edgefront.core.services.quality.trust import published_trust
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space
from edgefront.core.spaces.huggingface import from_config
from edgefront.core.spaces.models import named_model
from edgefront.core.spaces.versions import FIELDS
from edgefront.core.wire import agent, jobs, recommendations, service

_NOW = datetime(2026, 5, 4, 9, 30, tzinfo=timezone.utc)
_LATER = datetime(2026, 5, 4, 9, 31, tzinfo=timezone.utc)
_JOB = "job_01jv0c8z5m4q3k2n1p0r9s8t7v"
_TARGET = "tgt_01jv0c8z5n6q3k2n1p0r9s8t7w"
_CANDIDATE = "cnd_01jv0c9a7m4q3k2n1p0r9s8t7x"
_DEVICE = "dev_01jv0bzz1m4q3k2n1p0r9s8t7y"
_LAUNCH = "lau_01jv0c9b2m4q3k2n1p0r9s8t7z"
_LEASE = "lse_01jv0c9c3m4q3k2n1p0r9s8t70"
_KEY = "key_01jv0a000m4q3k2n1p0r9s8t71"
_ENROLMENT = "enr_01jv0a111m4q3k2n1p0r9s8t72"


def _json(model: BaseModel) -> Any:
    return model.model_dump(mode="json")


ARCHITECTURE: dict[str, Any] = {
    "version": 1,
    "d_model": 256,
    "embedding": {"vocab_size": 50264, "cutoffs": [19997, 39997], "div": 4},
    "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 768}],
}

PATTERN: dict[str, Any] = {
    "d_model": 512,
    "norm": "post",
    "activation": "relu",
    "positions": {"kind": "relative", "clamp": 400},
    "embedding": {"vocab_size": 267735, "cutoffs": [19997, 39997, 199997]},
    "blocks": {
        "pattern": "(sfff)x6(f)x8",
        "s": {"kind": "attention", "n_head": 8},
        "f": {"kind": "feed_forward", "d_inner": 2048},
    },
}

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
_IMPORTED = from_config(CONFIG)
IMPORTED = _json(service.ImportedModel(digest=_IMPORTED.digest, architecture=_IMPORTED.canonical))

_COSTS = service.Costs.model_validate(costs(Architecture.parse(ARCHITECTURE)).to_json())
COSTS = _json(_COSTS)
_DIGEST = _COSTS.digest

PROTOCOL = MeasurementProtocol()

JOB_REQUEST = _json(
    jobs.JobRequest(
        name="small models for the lab laptops",
        space=jobs.SpaceRequest(name="lts-gpt2", narrow={"n_layer": [1, 2, 3, 4], "d_model": {"max": 512}}),
        targets=(
            jobs.TargetRequest(
                device_class="laptop", protocol=PROTOCOL, limits=jobs.Limits(latency_ms=50, memory_mb=300)
            ),
        ),
        budget=jobs.Budget(candidates=60),
    )
)

JOB_REQUESTS: dict[str, tuple[str, Any]] = {
    "frontier": ("The whole frontier of a space, on a class of devices", JOB_REQUEST),
    "generate": (
        "The best model whose first token, and each further one, come within these times",
        _json(
            jobs.JobRequest(
                name="answers on the lab laptops",
                goal="best_within_limits",
                space=jobs.SpaceRequest(name="llama"),
                targets=(
                    jobs.TargetRequest(
                        device="lab-7",
                        protocol=MeasurementProtocol.model_validate(
                            {"mode": "generate", "sequence_length": 512, "new_tokens": 64, "memory_length": 1024}
                            | {"latency": "token"}
                        ),
                        limits=jobs.Limits(first_token_ms=400, token_ms=20, memory_mb=600),
                    ),
                ),
                budget=jobs.Budget(candidates=60),
            )
        ),
    ),
    "my_model": (
        "Around a model of one's own, as POST /v1/models/import describes it",
        _json(
            jobs.JobRequest(
                name="faster than mine",
                goal="best_within_limits",
                space=jobs.SpaceRequest.model_validate({"model": IMPORTED["architecture"]}),
                targets=(jobs.TargetRequest(device="lab-7", limits=jobs.Limits(latency_ms=50)),),
                budget=jobs.Budget(minutes=30),
            )
        ),
    ),
}

_JOB_TARGET = jobs.TargetView(
    id=_TARGET,
    name="laptop, onnxruntime",
    device="laptop",
    state="searching",
    protocol=PROTOCOL,
    limits=jobs.Limits(latency_ms=50, memory_mb=300),
    generation=1,
    candidates=34,
    settled=27,
    planned=64,
    launches_done=29,
    frontier_size=9,
    hypervolume=0.61,
    reference={"proxy": 0.0, "proxy_scale": 12_600_000.0, "latency_ms": 61.2, "memory_bytes": 402_000_000.0},
    measuring_share=0.78,
    seconds_left=95.0,
    devices_online=2,
    note="",
    summary="At equal decoder parameters up to 1.8× (1.7–1.9×) faster and 1.4× smaller in peak memory than the "
    "layer-scaled baseline; median 1.3× (1.2–1.4×) faster and 1.2× smaller (9 frontier points, 8 both measurably "
    "faster and smaller).",
)
_JOB_VIEW = jobs.JobView(
    id=_JOB,
    name="small models for the lab laptops",
    owner="ada",
    state="running",
    reason=None,
    request=jobs.JobRequest.model_validate(JOB_REQUEST),
    proxy_trust=published_trust(jobs.JobRequest.model_validate(JOB_REQUEST)),
    targets=(_JOB_TARGET,),
    created_at=_NOW,
    updated_at=_LATER,
    finished_at=None,
    last_event=71,
)
JOB = _json(_JOB_VIEW)
JOB_PAGE = _json(jobs.JobPage(items=(_JOB_VIEW,), next_cursor=None))

CANDIDATE_VIEW = jobs.CandidateView(
    id=_CANDIDATE,
    job_id=_JOB,
    target_id=_TARGET,
    number=17,
    role="search",
    generation=0,
    operator="mutate",
    parents=("cnd_01jv0c8zzm4q3k2n1p0r9s8t73",),
    state="measured",
    reason=None,
    digest=_DIGEST,
    architecture=ARCHITECTURE,
    decoder_parameters=_COSTS.decoder_parameters,
    total_parameters=_COSTS.total_parameters,
    weight_bytes=_COSTS.weight_bytes,
    flops=_COSTS.flops,
    proxy=float(_COSTS.decoder_parameters),
    latency_ms=12.4,
    latency_half_width_ms=0.2,
    latency_p90_ms=None,
    memory_bytes=31_731_712 + _COSTS.weight_bytes,
    build_peak_bytes=38_273_024,
    launches=2,
    on_frontier=True,
    versus_baseline=jobs.Versus(
        latency_ms=17.1,
        memory_bytes=70_000_000.0,
        speedup=1.38,
        speedup_low=1.35,
        speedup_high=1.41,
        memory_ratio=1.14,
        extrapolated=False,
    ),
    created_at=_NOW,
    measured_at=_LATER,
)
CANDIDATE = _json(CANDIDATE_VIEW)
CANDIDATE_PAGE = _json(jobs.CandidatePage(items=(CANDIDATE_VIEW,), next_cursor="WzE3LCJjbmRfMDEiXQ"))
FRONTIER = _json(
    jobs.FrontierView(
        job_id=_JOB,
        target_id=_TARGET,
        target="laptop, onnxruntime",
        hypervolume=0.61,
        reference=_JOB_TARGET.reference,
        points=(CANDIDATE_VIEW,),
        baseline=(),
        summary=_JOB_TARGET.summary,
        epsilon=0.02,
        proxy_trust=_JOB_VIEW.proxy_trust,
    )
)
_PREDICTED = jobs.PredictedView(perplexity=31.2, perplexity_low=30.4, perplexity_high=32.0, law="lts-gpt2-wikitext103")
_STOCK = {"role": "baseline", "generation": -1, "operator": "baseline", "parents": (), "versus_baseline": None}
RECOMMENDATION = _json(
    recommendations.RecommendationView(
        job_id=_JOB,
        target_id=_TARGET,
        target="laptop, onnxruntime",
        limits=jobs.Limits(latency_ms=50, memory_mb=300),
        by="predicted",
        proxy="quality_law",
        perplexity_of="WikiText-103, validation split",
        sentence="Within 50 ms and 300 MB a model of predicted perplexity 31.2 ± 0.8. Against the largest stock model "
        "within the limits (4 layers): predicted perplexity 8.2 ± 3.3 % lower, no measurable difference in latency "
        "(± 2.4 %), peak memory 12 ± 0.6 % lower.",
        recommended=CANDIDATE_VIEW.model_copy(update={"predicted": _PREDICTED}),
        baseline=CANDIDATE_VIEW.model_copy(update={"id": f"{_CANDIDATE[:-1]}0", "on_frontier": False, **_STOCK}),
        runners_up=(
            recommendations.RunnerUpView(
                candidate=CANDIDATE_VIEW.model_copy(update={"id": f"{_CANDIDATE[:-1]}1"}),
                trade="latency 6.1 ± 2.4 % lower, peak memory 3.0 ± 0.7 % lower, "
                "no measurable difference in predicted perplexity (± 3.2 %)",
            ),
        ),
    )
)
_EVENT = jobs.EventView(
    number=71,
    kind="frontier",
    target_id=_TARGET,
    data={"joined": [_CANDIDATE], "left": [], "size": 9, "hypervolume": 0.61, "summary": _JOB_TARGET.summary},
    created_at=_LATER,
)
EVENT_STREAM = f"id: 71\r\nevent: frontier\r\ndata: {_EVENT.model_dump_json()}\r\n\r\n: still here\r\n\r\n"

FACTS = agent.DeviceFacts(
    hostname="lab-7",
    system="Linux 6.1.0",
    architecture="x86_64",
    cpu="AMD Ryzen 7 5700U",
    cpu_features=("avx2", "fma"),
    cores=4,
    memory_bytes=16_700_000_000,
    runtimes=(
        agent.RuntimeFacts(
            runtime="onnxruntime", version="1.22.0", providers=("cpu",), memory_methods=("anonymous", "resident")
        ),
    ),
    descriptions=FIELDS,
    modes=("forward", "prefill", "decode", "generate"),
)
_DEVICE_VIEW = service.DeviceView(
    id=_DEVICE,
    name="lab-7",
    device_class="laptop",
    owner="lab",
    state="active",
    online=True,
    last_seen_at=_LATER,
    enrolled_at=_NOW,
    facts=FACTS,
    leased=8,
    measuring_share=0.81,
)
ANCHOR = _json(
    service.AnchorView(
        device_id=_DEVICE,
        digest=_DIGEST,
        drift=None,
        points=(
            service.AnchorPoint(
                launch_id=_LAUNCH, measured_at=_NOW, latency_ms=1.42, clock_mhz=4100, load_1m=0.2, temperature_c=48
            ),
        ),
    )
)
DEVICE = _json(_DEVICE_VIEW)
DEVICE_WORK = _json(
    service.DeviceWork(
        device_id=_DEVICE,
        held=(
            service.HeldLaunch(
                launch_id=_LAUNCH,
                purpose="first",
                started_at=_NOW,
                digest=_DIGEST,
                architecture=ARCHITECTURE,
                runtime="onnxruntime",
                mode="forward",
                job_id=_JOB,
                job_name="a model for my laptop",
                candidate_id=_CANDIDATE,
            ),
        ),
        waiting=12,
        waiting_class=0,
        queue=(service.QueuedLaunches(job_id=_JOB, job_name="a model for my laptop", of_class=False, launches=12),),
    )
)
LOG_REQUEST = _json(
    agent.LogRequest(lines=(agent.LogLine(at=_NOW, level="info", message="0a1b2c3d onnxruntime: 12.41 ms, 98.1 MB"),))
)
DEVICE_LOG = _json(
    service.DeviceLog(
        device_id=_DEVICE,
        lines=(
            service.LoggedLine(number=71, at=_NOW, level="info", message="0a1b2c3d onnxruntime: 12.41 ms, 98.1 MB"),
        ),
    )
)
ADDRESS = _json(service.AddressView(url="https://edgefront.example", local_only=False))
DEVICE_PAGE = _json(service.DevicePage(items=(_DEVICE_VIEW,)))

ENROL_REQUEST = _json(agent.EnrolRequest(name="lab-7", device_class="laptop", facts=FACTS))
ENROL_RESPONSE = _json(agent.EnrolResponse(device_id=_DEVICE, credential="efa_the-secret-is-shown-once"))
IDENTIFIER = _json(service.IdentifierView(id=_JOB))
TOKEN_REQUEST = _json(service.EnrolmentTokenRequest(name="lab", minutes=60, uses=10))
_TOKEN_VIEW = service.EnrolmentTokenView(id=_ENROLMENT, name="lab", expires_at=_LATER, uses_left=10, revoked=False)
TOKEN = _json(_TOKEN_VIEW)
TOKEN_USED = _json(_TOKEN_VIEW.model_copy(update={"uses_left": 9, "enrolled": (_DEVICE,)}))
TOKEN_MADE = _json(_TOKEN_VIEW.model_copy(update={"token": "efe_the-secret-is-shown-once"}))
REENROL_REQUEST = _json(service.ReenrolRequest(minutes=60))
REENROL_MADE = _json(
    _TOKEN_VIEW.model_copy(
        update={"name": "lab-7", "uses_left": 1, "device_id": _DEVICE, "token": "efe_the-secret-is-shown-once"}
    )
)

LEASE_REQUEST = _json(agent.LeaseRequest(max_items=8, wait_s=25))
LEASE_RESPONSE = _json(
    agent.LeaseResponse(
        lease_id=_LEASE,
        items=(
            agent.LeaseItem(
                launch_id=_LAUNCH, fence=1, digest=_DIGEST, architecture=ARCHITECTURE, protocol=PROTOCOL, seed=17
            ),
        ),
        expires_at=_LATER,
        ttl_s=60,
        heartbeat_s=15,
    )
)
START_REQUEST = _json(agent.StartRequest(fence=1))
HEARTBEAT = _json(agent.HeartbeatResponse(expires_at=_LATER))
RELEASE_REQUEST = _json(agent.ReleaseRequest(launch_ids=(_LAUNCH,)))
_RESULT = LaunchResult(
    outcome="done",
    latency=LatencySamples(warmup_ms=(14.0, 12.6), samples_ms=(12.4, 12.3, 12.5, 12.4, 12.6)),
    memory=PeakMemory(
        method="anonymous",
        peak_bytes=31_731_712 + _COSTS.weight_bytes,
        forward_peak_bytes=31_731_712,
        build_peak_bytes=38_273_024,
        mapped_weight_bytes=_COSTS.weight_bytes,
    ),
    environment={"onnxruntime": "1.22.0", "cores": "2,3", "load": 0.4},
    build_s=0.05,
    measuring_s=0.09,
    wall_s=0.21,
)
REPORT_REQUEST = _json(
    agent.ReportRequest(reports=(agent.LaunchReport(launch_id=_LAUNCH, fence=1, result=_RESULT),), busy_s=0.3)
)
REPORT_RESPONSE = _json(agent.ReportResponse(receipts=(agent.ReportReceipt(launch_id=_LAUNCH, outcome="accepted"),)))
LAUNCHES = [
    _json(
        jobs.LaunchView(
            id=_LAUNCH,
            state="done",
            purpose="first",
            attempts=0,
            device_id=_DEVICE,
            reason=None,
            created_at=_NOW,
            started_at=_NOW,
            finished_at=_NOW,
            result=_RESULT,
        )
    )
]

KEY_REQUEST = _json(service.KeyRequest(name="ada notebook", owner="ada", days=90))
_KEY_VIEW = service.KeyView(
    id=_KEY,
    name="ada notebook",
    owner="ada",
    role="user",
    prefix="efk_x7Qm9a",
    created_at=_NOW,
    expires_at=None,
    revoked=False,
)
KEY = _json(_KEY_VIEW)
KEY_MADE = _json(_KEY_VIEW.model_copy(update={"key": "efk_the-secret-is-shown-once"}))
SESSION_REQUEST = _json(service.SessionRequest(key="efk_the-secret"))
ME = _json(service.MeView(key_id=_KEY, name="ada notebook", owner="ada", role="user"))

_SPACE = space("par-32")
SPACE = _json(
    service.SpaceView(
        name=_SPACE.name,
        title=_SPACE.title,
        source=_SPACE.source,
        caveat=_SPACE.caveat,
        genes=_SPACE.genes(),
        size=str(_SPACE.size()),
    )
)
_MODEL = named_model("srupp-small")
MODEL = _json(
    service.NamedModelView(
        name=_MODEL.name,
        source=_MODEL.source,
        architecture=_MODEL.architecture.canonical,
        costs=service.Costs.model_validate(costs(_MODEL.architecture).to_json()),
    )
)
QUALITY_LAW = _json(service.QualityLawView.model_validate(summary(law_named("lts-gpt2-wikitext103"))))
ALGORITHM = _json(
    service.AlgorithmView(
        name="random",
        title="Random search",
        source="Bergstra & Bengio 2012",
        settings={"type": "object", "properties": {"batch": {"type": "integer", "default": 20}}},
    )
)
HEALTH = _json(service.HealthView(status="ok", version="0.1.0"))
READY = _json(
    service.HealthView(status="ok", version="0.1.0", checks={"database": "ok", "migrations": "ok", "broker": "ok"})
)
METRICS = '# HELP edgefront_jobs Jobs by state\n# TYPE edgefront_jobs gauge\nedgefront_jobs{state="running"} 1.0\n'
OPENAPI = {"openapi": "3.1.0", "info": {"title": "edgefront", "version": "0.1.0"}, "paths": {}}
