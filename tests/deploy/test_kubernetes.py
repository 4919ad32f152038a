"""The manifests of deploy/kubernetes: names that belong together, rights, and settings that a broker reads.

`make check` judges them by Kubernetes' own schemas.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidelog import __version__
from tidelog.config import load

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
DOCUMENTS = [
    document
    for file in sorted(KUBERNETES.glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]


def of_kind(kind):
    return {each["metadata"]["name"]: each for each in DOCUMENTS if each["kind"] == kind}


def container(name):
    (found,) = of_kind("StatefulSet")[name]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("name", ["tidelog", "etcd"])
def test_every_pod_is_unprivileged_probed_and_limited(name):
    template = of_kind("StatefulSet")[name]["spec"]["template"]["spec"]
    assert template["automountServiceAccountToken"] is False
    assert template["securityContext"]["runAsNonRoot"] is True
    assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    given = container(name)
    assert given["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"readinessProbe", "livenessProbe"} <= set(given)
    assert given["resources"]["limits"]["memory"] == given["resources"]["requests"]["memory"]
    names = {port["name"] for port in given["ports"]}
    probes = [each["httpGet"]["port"] for key, each in given.items() if key.endswith("Probe")]
    assert set(probes) <= names


def test_names_lead_to_services_pods_and_ports():
    services, sets = of_kind("Service"), of_kind("StatefulSet")
    for name, each in sets.items():
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
        headless = services[each["spec"]["serviceName"]]
        assert headless["spec"]["clusterIP"] == "None"
        assert headless["spec"]["publishNotReadyAddresses"] is True
        assert headless["spec"]["selector"] == labels
        for kind in ("PodDisruptionBudget", "NetworkPolicy"):
            spec = of_kind(kind)[name]["spec"]
            assert (spec.get("selector") or spec["podSelector"])["matchLabels"] == labels
    assert services["tidelog"]["spec"]["selector"] == {"app.kubernetes.io/name": "tidelog"}


def test_the_brokers_start_with_these_settings():
    environ = {each["name"]: each.get("value", "1") for each in container("tidelog")["env"]}
    shown = {"$(POD_NAME)": "tidelog-1", "$(NAMESPACE)": "there"}
    for variable, value in environ.items():
        for name, meant in shown.items():
            environ[variable] = environ[variable].replace(name, meant)
        assert "$" not in environ[variable], value
    config = load(ROOT / "docker" / "server.properties", environ, {})
    assert config.ignored == {}
    assert [str(at) for at in config.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    (told,) = config.advertised_listeners
    assert told.host == "tidelog-1.tidelog-brokers.there.svc"
    replicas = of_kind("StatefulSet")["tidelog"]["spec"]["replicas"]
    assert config.default_replication_factor == replicas == 3
    members = [f"etcd-{number}.etcd:2379" for number in range(3)]
    assert config.cluster.metadata_store == "etcd://" + ",".join(members)
    assert container("tidelog")["image"] == f"tidelog:{__version__}"
