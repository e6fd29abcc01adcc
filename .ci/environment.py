"""Install the project with all its extras into the environment that runs this.

`.venv/bin/python .ci/environment.py`.

On the platform that requirements.lock is of, every distribution is the one whose SHA-256 stands
there, and the project comes without its dependencies. Anywhere else there are no hashes: the
versions are those of constraints.txt, and a line says so. What fails on the locked platform fails:
a hash that does not fit is never a reason to install without hashes.
"""

# ruff: noqa: INP001 - a script, no module

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
EXTRAS = "bench,dashboard,dask,docs,documents,fast,langgraph,local,openai,postgres,prometheus,test"
LOCKED = "CPython 3.11 on Linux x86_64 with glibc"
SEVERAL_BUILDS = ("torch",)  # of one version, each with its hash in the lock
PIP = (sys.executable, "-m", "pip")
INSTALL = (*PIP, "install", "--quiet", "--disable-pip-version-check")


def platform_name() -> str:
    """This Python and machine, in the words of `LOCKED`."""
    version = ".".join(platform.python_version_tuple()[:2])
    libc = platform.libc_ver()[0] or "another libc"
    return (
        f"{platform.python_implementation()} {version} on {platform.system()} "
        f"{platform.machine()} with {libc}"
    )


def commands(*, locked: bool) -> list[tuple[str, ...]]:
    """What installs the project, in order."""
    if not locked:
        return [(*INSTALL, "--constraint", "constraints.txt", "--editable", f".[{EXTRAS}]")]
    return [
        (*INSTALL, "--no-deps", "--require-hashes", "--requirement", "requirements.lock"),
        # The lock holds what builds the project, too: nothing comes from elsewhere.
        (*INSTALL, "--no-deps", "--no-build-isolation", "--editable", "."),
    ]


def locked_line(name: str) -> str:
    """Line of the lock with the pin of a distribution and its hashes."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def install_own_build(name: str) -> None:
    """Install a distribution of several builds.

    The one that this machine is set to take, by its hash in the lock.

    By a requirement with hashes pip takes a file whose hash its index states, so that PyTorch for
    processors, where that lies in a folder, loses against the one for graphics cards, which is
    several GB larger.
    """
    pin, *hashes = locked_line(name).split()
    if (here := installed_version(name)) is not None and here.partition("+")[0] == pin.partition(
        "=="
    )[2]:
        say(f"{name} {here} is installed already: it stays, and its hash is not checked.")
        return
    with TemporaryDirectory() as folder:
        run(
            *PIP,
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            folder,
            pin,
        )
        (file,) = Path(folder).iterdir()
        stated = Path(folder) / "requirements.txt"
        stated.write_text(" ".join([f"{name} @ {file.as_uri()}", *hashes]), encoding="utf-8")
        run(*INSTALL, "--no-deps", "--require-hashes", "--requirement", str(stated))


def installed_version(name: str) -> str | None:
    """Version of a distribution in this environment; None where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run(*command: str) -> None:
    """Run a command in the project; its failure is this script's."""
    done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603 - commands of this file
    if done.returncode:
        sys.exit(done.returncode)


def missing() -> list[str]:
    """What pip misses in the environment, a line each."""
    done = subprocess.run(  # noqa: S603
        (*PIP, "check"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode else []


def say(*lines: str) -> None:
    """Tell whoever runs make."""
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Install, and say where hashes end."""
    if (here := platform_name()) != LOCKED:
        say(
            f"requirements.lock is of {LOCKED}, this is {here}: versions of constraints.txt, "
            "without hashes."
        )
        run(*commands(locked=False)[0])
        return
    for name in SEVERAL_BUILDS:
        install_own_build(name)
    for command in commands(locked=True):
        run(*command)
    if lines := missing():
        # PyTorch's build for graphics cards needs libraries that the build for processors, which is
        # locked, has not.
        say(
            "requirements.lock lacks what these need; it comes by constraints.txt, without hashes:",
            *lines,
        )
        run(*commands(locked=False)[0])


if __name__ == "__main__":
    main()
