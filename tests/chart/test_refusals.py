"""Wrong values, and the sentence with which the chart refuses each of them. The sentence says what to write instead.

Each case takes values that work and changes one or two of them, as a person would on the command line.
"""

from __future__ import annotations

import pytest
from kube.chart_tools import CHART, template

MEMORY, KAFKA, STATEFUL = ("memory", "kafka", "statefulset")
COLLECT, SPILL, BOTH = ("collect", "collect-spill", "both")
PLACES = {name: CHART / f"ci/{name}-values.yaml" for name in (MEMORY, KAFKA, STATEFUL, COLLECT, SPILL, BOTH)}
BROKERS = "config.queue.url=kafka://kafka-1:9092/hints"
CA = "tls.kafka.secret=kafka-ca"
HPA, KEDA = "autoscaling.hpa.enabled=true", "autoscaling.keda.enabled=true"
LAG = "autoscaling.keda.lag.enabled=true"

# for each case: the values that work, the changes, a part of the sentence
CASES = [
    # names and forms: the schema
    (MEMORY, ["replicaCont=2"], "additional properties 'replicaCont' not allowed"),
    (MEMORY, ["image.tagg=1"], "additional properties 'tagg' not allowed"),
    (MEMORY, ["config.cash.url=redis://x"], "additional properties 'cash' not allowed"),
    (MEMORY, ["config.sources.main.budgt=5/s"], "additional properties 'budgt' not allowed"),
    (MEMORY, ["networkPolicy.port=1"], "additional properties 'port' not allowed"),
    (MEMORY, ["autoscaling.enabled=true"], "additional properties 'enabled' not allowed"),
    (MEMORY, ["mode=daemonset"], "value must be one of 'deployment', 'statefulset'"),
    (MEMORY, ["replicaCount=two"], "at '/replicaCount': got string, want integer"),
    (MEMORY, ["replicaCount=-1"], "at '/replicaCount': minimum: got -1, want 0"),
    (MEMORY, ["logLevel=trace"], "value must be one of 'debug', 'info', 'warning', 'error'"),
    (MEMORY, ["image.digest=latest"], "'latest' does not match pattern '^(sha256:"),
    (MEMORY, ["image.pullPolicy=Sometimes"], "value must be one of 'Always', 'IfNotPresent', 'Never'"),
    (MEMORY, ["config.version=2"], "value must be one of 1, '1'"),
    (MEMORY, ["config.cache.url=http://redis"], "at '/config/cache/url': 'http://redis' does not match"),
    (MEMORY, ["config.sources.main.budget=500"], "at '/config/sources/main/budget': got number, want string"),
    (
        MEMORY,
        ["config.sources.main.url=postgresql://db/shop"],
        "'postgresql://db/shop' does not match pattern '^(postgresql[+]asyncpg|",
    ),
    (MEMORY, ["config.namespaces.product.ttl=5 minutes"], "'5 minutes' does not match pattern"),
    (
        MEMORY,
        ["config.namespaces.product.key=null"],
        "at '/config/namespaces/product/key': got null, want string",
    ),
    (MEMORY, ["config.namespaces=null"], "at '/config/namespaces': got null, want object"),
    (MEMORY, ["terminationGracePeriodSeconds=10"], "minimum: got 10, want 16"),
    (MEMORY, ["podDisruptionBudget.maxUnavailable=0"], "at '/podDisruptionBudget/maxUnavailable'"),
    (MEMORY, ["networkPolicy.ports={http}"], "at '/networkPolicy/ports/0': got string, want integer"),
    (MEMORY, ["networkPolicy.metricsFrom=null"], "networkPolicy.metricsFrom: names nobody"),
    (MEMORY, ["fullnameOverride=Shop"], "'Shop' does not match pattern"),
    (MEMORY, ["tls.redis.secrt=x"], "additional properties 'secrt' not allowed"),
    (MEMORY, ["service.type=ExternalName"], "value must be one of 'ClusterIP'"),
    (MEMORY, ["extraVolumes[0].emptyDir.medium=Memory"], "missing property 'name'"),
    (
        MEMORY,
        ["livenessProbe.periodSecond=3"],
        "at '/livenessProbe': additional properties 'periodSecond' not allowed",
    ),
    (MEMORY, ["startupProbe.failures=3"], "at '/startupProbe': additional properties 'failures' not allowed"),
    (MEMORY, ["readinessProbe.http=x"], "at '/readinessProbe': additional properties 'http' not allowed"),
    (
        MEMORY,
        ["securityContext.runAsUsr=1"],
        "at '/securityContext': additional properties 'runAsUsr' not allowed",
    ),
    (
        MEMORY,
        ["podSecurityContext.fsgroup=1"],
        "at '/podSecurityContext': additional properties 'fsgroup' not allowed",
    ),
    (
        MEMORY,
        ["affinity.podAffinities=x"],
        "at '/affinity': additional properties 'podAffinities' not allowed",
    ),
    (MEMORY, ["updateStrategy.kind=x"], "at '/updateStrategy': additional properties 'kind' not allowed"),
    # names that other charts use
    (MEMORY, ["replicas=1"], "replicas: is called replicaCount here; rename it"),
    (MEMORY, ["env.A=b"], "env: is called extraEnv here; rename it"),
    (MEMORY, ["persistence.enabled=true"], "persistence: is called state.persistence here; rename it"),
    (
        MEMORY,
        ["serviceMonitor.enabled=true"],
        "serviceMonitor: is called metrics.serviceMonitor here; rename it",
    ),
    # the configuration, and the ConfigMap and Secret that bring it
    (MEMORY, ["config=null"], "config: says nothing; write the configuration there"),
    (MEMORY, ["existingConfigMap=other"], "config: existingConfigMap is given too; leave one of them out"),
    (
        MEMORY,
        ["config.admin.listen=127.0.0.1:9090"],
        "config.admin.listen: must be 0.0.0.0:9090 or [::]:9090, where the probes ask; remove it",
    ),
    (
        MEMORY,
        ["config.state=/data/learned"],
        "config.state: the root file system is read-only; write a file under /var/lib/cacheupdater/",
    ),
    (
        MEMORY,
        [
            "config.namespaces.new.key=new:{id}",
            "config.namespaces.new.load.source=main",
            "config.namespaces.new.load.python=shop:load",
        ],
        "config.namespaces.new.load.python: nothing is on /app; name loaders.configMap",
    ),
    (
        MEMORY,
        ["config.namespaces.product.load.source=mian"],
        'config.namespaces.product.load.source: no source is called "mian"; use one of main, or write it into config.sources',
    ),
    (
        MEMORY,
        ["config.cache.url=redis://:s3cret@redis:6379/0"],
        "config.cache.url: holds a password, and a ConfigMap is no secret; write ${NAME} there",
    ),
    (
        MEMORY,
        ["config.sources.main.url=postgresql+asyncpg://u:pw@db/shop"],
        "config.sources.main.url: holds a password",
    ),
    (
        MEMORY,
        ["existingSecret.name="],
        "config: nothing brings ${REDIS_PASSWORD} into the pod; name the Secret that has REDIS_PASSWORD in existingSecret.name, or write REDIS_PASSWORD into extraEnv",
    ),
    (
        MEMORY,
        ["existingSecret.env=false"],
        "config: nothing brings ${DB_USER} into the pod; name the Secret that has DB_USER in existingSecret.name, with env: true, or write",
    ),
    # settings of one pod, and settings of many pods
    (
        MEMORY,
        ["replicaCount=2"],
        "replicaCount: with queue memory:// each of 2 pods would own every key and spend the whole budget of each source; set it to 1, or set config.queue.url to kafka://",
    ),
    (MEMORY, ["workers=2"], "workers: share the partitions of a topic"),
    (
        MEMORY,
        ["config.listen={unix:///run/cacheupdater/hints.sock}"],
        "config.listen: no other pod could send hints",
    ),
    (MEMORY, ["config.listen={tcp://127.0.0.1:7171}"], "config.listen: no other pod could send hints"),
    (MEMORY, [HPA], "autoscaling.hpa: a memory:// queue belongs to one pod"),
    (MEMORY, [KEDA, LAG], "autoscaling.keda: a memory:// queue belongs to one pod"),
    (
        KAFKA,
        ["replicaCount=13"],
        "replicaCount: 13 updaters are more than the topic's 12 partitions, and the rest would idle; lower it, or add partitions and say so in topic.partitions",
    ),
    (KAFKA, ["replicaCount=4", "workers=4"], "replicaCount: 16 updaters are more than the topic's 12"),
    (KAFKA, [HPA, "autoscaling.hpa.maxReplicas=20"], "autoscaling.hpa.maxReplicas: 20 updaters are more"),
    (
        KAFKA,
        [KEDA, LAG, "autoscaling.keda.maxReplicas=20"],
        "autoscaling.keda.maxReplicas: 20 updaters are more",
    ),
    (
        KAFKA,
        [HPA, KEDA, LAG],
        "autoscaling: hpa and keda would fight over the replicas; enable one of them",
    ),
    (KAFKA, [HPA, "autoscaling.hpa.minReplicas=9"], "autoscaling.hpa.minReplicas: is above maxReplicas"),
    (KAFKA, [KEDA], "autoscaling.keda: has nothing to scale by; enable lag or hintAge"),
    (
        KAFKA,
        [KEDA, "autoscaling.keda.hintAge.enabled=true"],
        "autoscaling.keda.hintAge.serverAddress: is empty; name your Prometheus",
    ),
    (
        KAFKA,
        [KEDA, LAG, "config.queue.url=kafka://${BROKERS}/hints"],
        "autoscaling.keda.lag: brokers and topic must stand in config.queue.url",
    ),
    (KAFKA, ["mode=statefulset"], "add instance=${HOSTNAME} to the options of config.queue.url"),
    (STATEFUL, ["mode=deployment"], "config.queue.url: instance= is for pods that keep their names"),
    (KAFKA, ["state.persistence.enabled=true"], "state.persistence: each updater needs a file of its own"),
    (
        STATEFUL,
        ["state.persistence.enabled=true"],
        "state.persistence: nothing is kept without a file; set config.state",
    ),
    # the roles
    (MEMORY, ["role=collector"], "value must be one of 'update', 'collect', 'both'"),
    (MEMORY, ["role=collect"], "config: a collector reads no configuration; write collect.queue"),
    (KAFKA, ["collect.queue=kafka://k:9092/hints"], "collect.queue: only a collector forwards there"),
    (
        MEMORY,
        ["collect.spill.enabled=true"],
        "collect.spill: only a collector has a spill; set role: collect",
    ),
    (COLLECT, ["existingConfigMap=mine"], "config: a collector reads no configuration"),
    (
        COLLECT,
        ["collect.queue=memory://"],
        "collect.queue: memory:// is nothing that a pod can share with updaters in other pods; write kafka://",
    ),
    (
        COLLECT,
        ["collect.queue=sqlite:////var/lib/cacheupdater/hints.db"],
        "collect.queue: sqlite:// is nothing",
    ),
    (COLLECT, ["collect.queue=kafka-1:9092"], "collect.queue: kafka is nothing that a pod can share"),
    (SPILL, ["collect.queue=redis://:${P}@queue/0?stream=hints"], "write $(NAME) instead of ${NAME}"),
    (
        SPILL,
        ["collect.queue=redis://:s3cret@queue/0?stream=hints"],
        "collect.queue: holds a password, and everybody who may see the pod could read the password; write $(NAME) there",
    ),
    (
        COLLECT,
        ["collect.queue=", "tls=null", "existingSecret.name="],
        "collect.queue: says nothing; write where hints go, or name the Secret with CACHEUPDATER_QUEUE",
    ),
    (
        COLLECT,
        ["collect.listen={unix:///run/cacheupdater/hints.sock}"],
        "collect.listen: no other pod could send hints; write tcp://0.0.0.0:7171",
    ),
    (COLLECT, ["collect.listen={http://0.0.0.0:7172}"], "'http://0.0.0.0:7172' does not match pattern"),
    (COLLECT, ["workers=2"], "workers: a collector is one process; remove it, and raise replicaCount"),
    (COLLECT, [KEDA, LAG], "autoscaling.keda: measures what updaters have not finished"),
    (COLLECT, ["loaders.configMap=code"], "loaders: a collector loads nothing; remove it"),
    (COLLECT, ["test.key=product:1"], "test.key: a collector writes no value that a test could wait for"),
    (SPILL, ["collect.spill.enabled=false"], "state.persistence: a collector keeps nothing without a spill"),
    (SPILL, ["mode=deployment"], "pods of a Deployment would share one; set mode: statefulset"),
    (
        SPILL,
        ["collect.spill.size=2GiB"],
        "collect.spill.size: 2GiB needs a quarter more on the volume, or the pod would be evicted or its disk full; raise state.persistence.size, which is 2Gi",
    ),
    (
        COLLECT,
        ["collect.spill.enabled=true", "state.sizeLimit=300M"],
        "raise state.sizeLimit, which is 300M",
    ),
    (
        SPILL,
        ["podSecurityContext.fsGroupChangePolicy=Always"],
        "podSecurityContext.fsGroupChangePolicy: each new pod would open the spill to its group",
    ),
    (COLLECT, ["collect.spill.keep.reads=1h"], "additional properties 'reads' not allowed"),
    (
        COLLECT,
        ["collect.queue=kafka://kafka-1:9092/hints"],
        "add ca=/etc/cacheupdater-tls/kafka/ca.crt to the options of collect.queue",
    ),
    (
        MEMORY,
        ["role=both"],
        "role: both forwards hints to a queue that updaters share, and memory:// is within one process",
    ),
    (KAFKA, ["role=both"], "role: both collects what arrives at config.listen, and nothing is there"),
    (BOTH, ["config=null", "existingConfigMap=mine"], "role: both needs config, where the chart reads"),
    (BOTH, ["config.listen={tcp://127.0.0.1:7171}"], "config.listen: no other pod could send hints"),
    (
        BOTH,
        ["role=update"],
        "config.listen: beside a queue that updaters share, these pods would collect hints too; set role: both",
    ),
    (
        BOTH,
        ["config.queue.url=sqlite:////var/lib/cacheupdater/hints.db"],
        "replicaCount: with queue sqlite:// each of 2 pods would own every key",
    ),
    # certificates and secrets
    (
        KAFKA,
        [CA],
        "tls.kafka: the brokers would be spoken to in plain text; add ca=/etc/cacheupdater-tls/kafka/ca.crt",
    ),
    (MEMORY, ["tls.redis.secret=ca"], "tls.redis: Redis would be spoken to without it; write"),
    (MEMORY, ["tls.main.secret=ca"], "tls.main: no address names it; write /etc/cacheupdater-tls/main/"),
    (MEMORY, ["tls.mian.secret=ca"], "tls.mian: names nothing of the configuration; use one of kafka, main"),
    (
        KAFKA,
        [CA, "tls.kafka.configMap=ca", f"{BROKERS}?ca=/etc/cacheupdater-tls/kafka/ca.crt"],
        "tls.kafka: has secret and configMap; leave one of them out",
    ),
    (
        KAFKA,
        [f"{BROKERS}?ca=/etc/cacheupdater-tls/kafka/ca.crt"],
        "config: names /etc/cacheupdater-tls/kafka/, and nothing is mounted there; set tls.kafka: {secret: …}",
    ),
    (
        MEMORY,
        ["config.cache.url=redis://redis:6379?ssl_ca_certs=/etc/cacheupdater-tls/redis/ca.crt"],
        "config.cache.url: has options of TLS and a scheme without it; write rediss://",
    ),
    (
        MEMORY,
        ["existingSecret.files=false", "config.admin.token_file=/run/secrets/cacheupdater/token"],
        "config: names files under /run/secrets/cacheupdater/; set existingSecret.name, with files: true",
    ),
    # the rest
    (MEMORY, ["metrics.dashboard.json=notjson"], "metrics.dashboard.json: is no JSON object; give the file"),
    (MEMORY, ["metrics.dashboard.json=[1]"], "metrics.dashboard.json: is no JSON object"),
    (MEMORY, ["metrics.dashboard.json=null\n"], "metrics.dashboard.json: is no JSON object"),
    (MEMORY, ['metrics.dashboard.json=\\{"panels": [}'], "metrics.dashboard.json: is no JSON object"),
    (
        MEMORY,
        ["metrics.prometheusRule.feeds.enabled=true"],
        "metrics.prometheusRule.feeds: no source here has changes, so these alerts would never speak",
    ),
    (
        COLLECT,
        ["metrics.prometheusRule.feeds.enabled=true"],
        "metrics.prometheusRule.feeds: no source here has changes",
    ),
    (
        MEMORY,
        ["metrics.prometheusRule.feeds.lagSeconds=7"],
        "at '/metrics/prometheusRule/feeds/lagSeconds': value must be one of 0.1, 0.5, 1, 5, 30",
    ),
    (
        MEMORY,
        ["metrics.prometheusRule.onCall.oldestSeconds=30"],
        "at '/metrics/prometheusRule/onCall/oldestSeconds': exclusiveMinimum: got 30, want 30",
    ),
    (
        MEMORY,
        ["metrics.prometheusRule.onCall.runbook=https://wiki/on-call#alerts"],
        "at '/metrics/prometheusRule/onCall/runbook': 'https://wiki/on-call#alerts' does not match pattern",
    ),
    (
        MEMORY,
        ["metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true"],
        "metrics: podMonitor and serviceMonitor would count everything twice; enable one of them",
    ),
    (MEMORY, ["serviceAccount.create=false"], "serviceAccount: the namespace's default account may have"),
    (
        MEMORY,
        ["test.key=product:1", "config.cache.url=redis+sentinel://s1:26379/shop/0"],
        "test.key: the test reads from one Redis or a cluster; with redis+sentinel:// leave it empty",
    ),
    (
        KAFKA,
        ["test.key=product:1", "config.queue.url=postgresql+asyncpg://db:5432/hints"],
        "test.key: an application cannot send hints straight into this queue, and neither can the test",
    ),
]


@pytest.mark.parametrize(("base", "wrong", "said"), CASES, ids=lambda each: str(each)[:50])
def test_wrong_values_are_refused_with_the_sentence_that_mends_them(base, wrong, said):
    done = template("--values", PLACES[base], *(f"--set={each}" for each in wrong))
    assert done.returncode != 0
    assert said in done.stderr


def test_a_source_that_a_variable_names_is_left_to_the_updater():
    """Only the pod knows its variables."""
    done = template("--values", PLACES[MEMORY], "--set=config.namespaces.product.load.source=${SOURCE}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "brought",
    [
        ["extraEnvFrom[0].configMapRef.name=shop"],
        ["image.repository=mirror/ours"],
        [f"extraEnv[{n}].name={name}" for n, name in enumerate(("REDIS_PASSWORD", "DB_USER", "DB_PASSWORD"))],
        [
            "config.cache.url=redis://${CACHE:-redis}:6379/0",
            "config.sources.main.url=postgresql+asyncpg://db-$${a}/${HOSTNAME}",
        ],
    ],
    ids=[
        "a whole ConfigMap",
        "another image",
        "each by its name",
        "defaults, the pod's own, and no variable",
    ],
)
def test_a_variable_that_something_brings_is_let_through(brought):
    done = template(
        "--values", PLACES[MEMORY], "--set=existingSecret.name=", *(f"--set={each}" for each in brought)
    )
    assert done.returncode == 0, done.stderr


def test_at_least_forty_wrong_values_are_tried():
    assert len(CASES) >= 40


def test_all_mistakes_are_named_at_once():
    done = template("--values", PLACES[MEMORY], "--set=replicaCount=3", "--set=replicas=3", "--set=workers=2")
    assert done.stderr.count("\n  - ") == 3
