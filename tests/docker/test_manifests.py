"""docker/: the files are valid, nothing is open, nobody is root, no secret is in them, and their commands exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import pytest
import typer
import yaml

from search.cli import app
from search.config import SearchConfig
from tests.docker.check_image import instructions

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KUBERNETES = "1.31"


class Container(NamedTuple):
    """What the tests need to know of a container, whichever file describes it."""

    file: str
    name: str
    image: str
    words: list[str]
    environment: dict[str, str]
    files: set[str]


@cache
def compose(*files: str) -> dict[str, Any]:
    """The compose files as Docker Compose reads them; it refuses what is not in its schema."""
    program = Path(sys.executable).with_name("docker-compose")
    command = [str(program), *(word for file in files for word in ("-f", str(FOLDER / file))), "config"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/"}
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout))


@cache
def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in objects() if each["kind"] == kind]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod template of the manifest, and whose it is."""
    for each in objects():
        if "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]
    for cluster in of_kind("RayCluster"):
        for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
            yield group.get("groupName", "head"), group["template"]


def containers() -> Iterator[Container]:
    for name, service in compose("compose.yaml")["services"].items():
        files = {each["target"] for key in ("secrets", "configs") for each in service.get(key, [])}
        words, environment = service["command"] or [], service.get("environment", {})
        yield Container("compose.yaml", name, service["image"], words, environment, files)
    for name, pod in pods():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for each in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
            environment = {variable["name"]: variable["value"] for variable in each["env"]}
            files = {path for mount in each["volumeMounts"] for path in mounted(mount, volumes)}
            words = each.get("command", [])
            yield Container("kuberay.yaml", f"{name}/{each['name']}", each["image"], words, environment, files)


def mounted(mount: dict[str, Any], volumes: dict[str, dict[str, Any]]) -> set[str]:
    secret = volumes.get(mount["name"], {}).get("secret")
    if secret is None:
        return {mount["mountPath"]}
    keys = [item["path"] for item in secret.get("items", [])] or ["postgres_password", "ray_token"]
    return {f"{mount['mountPath']}/{key}" for key in keys}


def commands(text: str, program: str) -> list[list[str]]:
    """The command lines of `program` in a shell script, as words."""
    found = []
    for part in re.split(r"&&|\|\||[;|\n]", text):
        start = re.search(rf"(?:^|\s){program}\s(?!compose)", part)
        if start and not part.lstrip().startswith("#"):
            found.append(shlex.split(re.sub(r"\s\d?>\S+", " ", part[start.end() :]), comments=True))
    return found


def all_commands(program: str) -> list[tuple[str, list[str]]]:
    found = []
    for each in containers():
        script = each.words[-1] if each.words[:2] == ["sh", "-c"] else shlex.join(each.words)
        found += [(each.name, words) for words in commands(script, program)]
    blocks = re.findall(r"^```\w*\n(.*?)^```", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return found + [("README.md", words) for block in blocks for words in commands(block, program)]


EVERY = list(containers())
NAMES = [f"{each.file}-{each.name}" for each in EVERY]
each_container = pytest.mark.parametrize("container", EVERY, ids=NAMES)


def test_docker_compose_accepts_the_files_with_and_without_gpus() -> None:
    plain, gpus = compose("compose.yaml"), compose("compose.yaml", "compose.gpu.yaml")
    assert set(plain["services"]) == {"postgres", "head", "worker", "search", "dashboard"} == set(gpus["services"])
    device = gpus["services"]["worker"]["deploy"]["resources"]["reservations"]["devices"][0]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_kubernetes_knows_every_field() -> None:
    for each in objects():
        if each["kind"] != "RayCluster":
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_kuberay_knows_every_field() -> None:
    """Names are those of ray.io/v1; a group's template is a pod's."""
    (cluster,) = of_kind("RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    assert set(cluster["spec"]) == {"headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["spec"]["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for name, pod in pods():
        podlike = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod["spec"]}
        kubernetes_validate.validate(podlike, KUBERNETES, strict=True)


def test_what_is_published_is_on_loopback_only() -> None:
    for name, service in compose("compose.yaml", "compose.gpu.yaml")["services"].items():
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name
        assert not {"network_mode", "privileged", "pid", "ipc"} & set(service), name
        assert "outside" not in service["networks"] or service.get("ports"), name
    assert compose("compose.yaml")["networks"]["inside"]["internal"]
    assert not of_kind("Ingress")
    for service in of_kind("Service"):
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
    (policy,) = of_kind("NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    own = policy["spec"]["podSelector"]
    assert rule == {"from": [{"podSelector": own}]}
    for name, pod in pods():
        assert own["matchLabels"].items() <= pod["metadata"]["labels"].items(), name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"]), name
        assert not [port for each in pod["spec"]["containers"] for port in each.get("ports", []) if "hostPort" in port]


def test_nobody_is_root() -> None:
    users = [rest for name, rest in instructions((FOLDER / "Dockerfile").read_text()) if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    for name, service in compose("compose.yaml")["services"].items():
        own = service["image"].startswith("plait:")
        assert service.get("user", users[-1] if own else "root").split(":")[0] not in ("root", "0"), name
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
    for name, pod in pods():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] > 0 and security["fsGroup"] > 0, name
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        for each in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
            if each["image"].startswith("plait:"):
                assert f"{security['runAsUser']}:{security['runAsGroup']}" == users[-1]
            assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_everything_that_runs_has_a_health_check() -> None:
    for name, service in compose("compose.yaml")["services"].items():
        assert service["healthcheck"]["test"][0] == "CMD", name
    for name, pod in pods():
        for each in pod["spec"]["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= set(each), name


@each_container
def test_a_secret_is_the_name_of_a_mounted_file(container: Container) -> None:
    for name, value in container.environment.items():
        if name.endswith(("_FILE", "_PATH")):
            assert value in container.files
        else:
            assert not re.search("PASSWORD|TOKEN|SECRET|KEY", name)


def test_no_file_holds_a_secret_and_git_takes_none() -> None:
    for path in FOLDER.glob("*"):
        if path.is_file():
            assert not re.search(r"://[^/\s]*:[^/\s]*@", path.read_text()), path
    assert not of_kind("Secret")
    for path in ("docker/secrets/postgres_password", "docker/secrets/ray_token", "docker/.env"):
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0, path


@each_container
def test_an_image_has_a_tag_and_ours_is_the_version(container: Container) -> None:
    name, _, tag = container.image.rpartition(":")
    assert name and re.fullmatch(r"\d[\w.-]*", tag)
    assert name != "plait" or tag == PROJECT["project"]["version"]


@each_container
def test_every_host_that_is_named_is_there(container: Container) -> None:
    hosts = set(compose("compose.yaml")["services"])
    if container.file == "kuberay.yaml":
        hosts = {each["metadata"]["name"] for each in of_kind("Service")}
        hosts |= {each["metadata"]["name"] + "-head-svc" for each in of_kind("RayCluster")}
    script = " ".join([*container.words, container.environment.get("PLAIT_STORAGE", "")])
    assert set(re.findall(r"--address=([\w-]+):|//plait@([\w-]+)/", script)) <= {(h, "") for h in hosts} | {
        ("", h) for h in hosts
    }


@pytest.mark.parametrize(("where", "words"), all_commands("plait"))
def test_every_plait_command_line_is_one_that_plait_takes(where: str, words: list[str]) -> None:
    known: Any = typer.main.get_command(app)
    known.commands[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize(("where", "words"), all_commands("ray"))
def test_every_ray_command_line_is_one_that_ray_takes(where: str, words: list[str]) -> None:
    from ray.scripts.scripts import cli

    cli.commands[words[0]].make_context(words[0], words[1:])


def test_kuberay_starts_ray_with_options_it_has() -> None:
    from ray.scripts.scripts import start

    (cluster,) = of_kind("RayCluster")
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        start.make_context("start", [f"--{name}={value}" for name, value in group["rayStartParams"].items()])


def test_the_search_is_the_same_in_both_files_and_valid() -> None:
    (config,) = of_kind("ConfigMap")
    here = SearchConfig.read(FOLDER / "search.toml")
    assert SearchConfig.from_dict(tomllib.loads(config["data"]["search.toml"])) == here


def test_the_image_gets_the_packages_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    packages = {name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line[0] == "!"} == packages | {"LICENSE", "README.md", "pyproject.toml"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_health_check_of_a_node_tells_an_open_port_from_a_closed_one() -> None:
    import socket

    test = compose("compose.yaml")["services"]["head"]["healthcheck"]["test"]
    script = test[-1].replace("$$", "$").replace("$HOSTNAME", "127.0.0.1")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        command = [*test[1:-1], script.replace("6380", str(port))]
        assert subprocess.run(command, capture_output=True).returncode != 0
        server.listen()
        assert subprocess.run(command, capture_output=True).returncode == 0
