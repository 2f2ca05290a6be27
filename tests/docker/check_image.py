"""The steps of docker/Dockerfile, run without Docker in a Debian root made by debootstrap, and then plait in it.

    sudo python -m tests.docker.check_image --folder /var/tmp/plait-image

It takes minutes and gigabytes, so it is run by hand, as root on Linux. The instructions are those of the Dockerfile and
of .dockerignore. Pip's settings come from this process's PIP_* variables; `--bind` shows the root a folder of this
machine, such as one of wheels, to read.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
IN_IMAGE = """\
set -e
test "$(id -u)" != 0
test ! -w /usr/local
cd "$HOME"
test "$(python -c 'import search; print(search.__file__)')" = /usr/local/lib/python3*/site-packages/search/__init__.py
test ! -e /usr/src/plait/tests
bash -lc 'ray --version'
plait doctor
plait init
plait run --config tiny.toml --trials 3
plait front tiny
"""


@dataclass
class Image:
    """A folder that is the image's file system, and what instructions have set so far."""

    root: Path
    binds: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"

    def run(self, script: str, **extra: str) -> None:
        """Runs a shell script in the image, in a mount and process space of its own. Raises CalledProcessError."""
        mounts = [
            f"mount -t proc proc {self.root}/proc",
            f"mount --rbind /dev {self.root}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {self.root}/dev/shm",
            f"mount -t tmpfs -o mode=1777 tmpfs {self.root}/tmp",
            f"cp --dereference /etc/resolv.conf {self.root}/etc/resolv.conf",
        ]
        for bind in self.binds:
            at = f"{self.root}{bind}"
            mounts += [f"mkdir -p {at}", f"mount --bind {bind} {at}", f"mount -o remount,bind,ro {at}"]
        inside = f"cd {shlex.quote(self.folder)} && {script}"
        enter = ["chroot", f"--userspec={self.user}", str(self.root), "/bin/sh", "-c", inside]
        subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-ec", "; ".join([*mounts, shlex.join(enter)])],
            env=self.environment | extra, check=True,
        )  # fmt: skip

    def copy(self, source: str, target: str) -> None:
        """COPY of one path of the build context; the folder is where relative targets start."""
        lines = (REPOSITORY / ".dockerignore").read_text().split()
        if lines[0] != "*":
            raise ValueError(".dockerignore: this check understands only one that ignores all but some paths")
        kept = [line[1:] for line in lines if line.startswith("!")]
        ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
        to = self.root / os.path.join(self.folder, target).lstrip("/")
        for name in kept if source == "." else [source]:
            if name not in kept:
                raise ValueError(f"COPY {source}: .dockerignore leaves it out")
            path = REPOSITORY / name
            if path.is_dir():
                shutil.copytree(path, to / name, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy(path, to / name)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: name and the rest, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def build(image: Image, arguments: dict[str, str], since: int) -> None:
    """Follows the Dockerfile; its first `since` RUN steps are taken as done."""
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    image.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    known: dict[str, str] = {}
    steps = 0
    for name, rest in instructions((REPOSITORY / "docker/Dockerfile").read_text()):
        if name == "FROM":
            suite = re.fullmatch(r"debian:(\w+)-slim", rest)
            if suite is None:
                raise ValueError(f"FROM {rest}: this check knows debian:SUITE-slim")
            if not (image.root / "etc/debian_version").exists():
                subprocess.run(["debootstrap", "--variant=minbase", suite[1], str(image.root)], check=True)
        elif name == "ARG":
            key, _, value = rest.partition("=")
            known[key] = arguments.get(key, value)
        elif name == "RUN":
            steps += 1
            if steps <= since:
                continue
            started = time.monotonic()
            image.run(rest, DEBIAN_FRONTEND="noninteractive", **pip, **{k: v for k, v in known.items() if v})
            print(f"-- {time.monotonic() - started:.0f} s: RUN {rest[:90]}", flush=True)
        elif name == "COPY":
            source, target = rest.split()
            image.copy(source, target)
        elif name == "WORKDIR":
            image.folder = rest
            (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            image.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif name == "USER":
            image.user = rest
        elif name == "CMD":
            image.run(shlex.join(json.loads(rest)))
        else:
            raise ValueError(f"{name}: this check does not know the instruction")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the root is; kept, and used again")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], help="a folder that the root may read at the same path")
    parser.add_argument("--since", type=int, default=0, help="how many RUN steps an earlier check has done there")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("check_image: needs root and debootstrap")
    image = Image(options.folder.resolve(), options.bind)
    build(image, dict(pair.split("=", 1) for pair in options.build_arg), options.since)
    home = image.folder.lstrip("/")
    shutil.copy(REPOSITORY / "tests/search/tiny.toml", image.root / home)
    for left in ("search.toml", "plait.db"):
        (image.root / home / left).unlink(missing_ok=True)
    image.run(IN_IMAGE, HOME=image.folder)
    print("The image's steps work, and plait in it.")


if __name__ == "__main__":
    main()
