"""The command line: `PYTHONPATH=tools python3 -m localcluster COMMAND`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from localcluster.build import api_server, binaries
from localcluster.cluster import Cluster, names_of_this_clone
from localcluster.errors import LocalClusterError
from localcluster.layout import DEFAULT_NAME

_INTERRUPTED = 130


def _build(_: argparse.Namespace) -> None:
    programs = binaries()
    api_server(programs)
    print(programs)


def _up(arguments: argparse.Namespace) -> None:
    Cluster(arguments.name).up(arguments.nodes, _archives(arguments))


def _down(arguments: argparse.Namespace) -> None:
    names = names_of_this_clone() if arguments.all_mine else [arguments.name]
    for name in names:
        Cluster(name).down()


def _load(arguments: argparse.Namespace) -> None:
    archives = _archives(arguments)
    if not archives:
        raise LocalClusterError("name at least one image archive, or --from build/images/images.json")
    Cluster(arguments.name).load(archives)


def _archives(arguments: argparse.Namespace) -> list[Path]:
    found = list(arguments.archives)
    if arguments.list is not None:
        if not arguments.list.exists():
            raise LocalClusterError(f"{arguments.list} does not exist: run `make images` first")
        found += [Path(entry["archive"]) for entry in json.loads(arguments.list.read_text()).values()]
    for archive in found:
        if not archive.is_file():
            raise LocalClusterError(f"{archive} does not exist: build the images again (`make images`)")
    return found


def _describe(arguments: argparse.Namespace) -> None:
    print(json.dumps(Cluster(arguments.name).describe(), indent=2))


def _node_exec(arguments: argparse.Namespace) -> None:
    answer = Cluster(arguments.name).node_exec(arguments.node, arguments.arguments)
    sys.stdout.write(answer.stdout)
    sys.stderr.write(answer.stderr)
    sys.exit(answer.returncode)


def _pids(arguments: argparse.Namespace) -> None:
    cluster = Cluster(arguments.name)
    for process in cluster.pids_of(arguments.node, arguments.namespace, arguments.pod, arguments.container):
        print(process.pid, " ".join(process.command))


def _on_node(operation: Callable[[Cluster, str], None]) -> Callable[[argparse.Namespace], None]:
    return lambda arguments: operation(Cluster(arguments.name), arguments.node)


def _on_cluster(operation: Callable[[Cluster], None]) -> Callable[[argparse.Namespace], None]:
    return lambda arguments: operation(Cluster(arguments.name))


_NODE_OPERATIONS: dict[str, tuple[Callable[[Cluster, str], None], str]] = {
    "power-off": (Cluster.power_off, "cut a node's power"),
    "power-on": (Cluster.power_on, "boot a node and wait until it is Ready"),
    "drop-packets": (Cluster.drop_packets, "lose all packets from and to a node"),
    "heal": (Cluster.heal, "end drop-packets"),
}
_CLUSTER_OPERATIONS: dict[str, tuple[Callable[[Cluster], None], str]] = {
    "restart-apiserver": (Cluster.restart_apiserver, "kill and start the API server"),
    "stop-apiserver": (Cluster.stop_apiserver, "kill the API server"),
    "start-apiserver": (Cluster.start_apiserver, "start the API server again"),
    "pause-control-plane": (Cluster.pause_control_plane, "freeze the control plane"),
    "resume-control-plane": (Cluster.resume_control_plane, "end pause-control-plane"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description="A real Kubernetes on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if name != "build":
            command.add_argument("--name", default=DEFAULT_NAME, help="which cluster of this clone")
        return command

    add("build", _build, "build etcd, Kubernetes and CoreDNS into the cache")
    up = add("up", _up, "bring the cluster up; what runs already stays")
    up.add_argument("--nodes", type=int, default=4)
    load = add("load", _load, "make image archives available on every node")
    for command in (up, load):
        command.add_argument("archives", nargs="*", type=Path, metavar="ARCHIVE")
        command.add_argument("--from", dest="list", type=Path, help="a file that `make images` wrote")
    down = add("down", _down, "end the cluster and leave nothing behind")
    down.add_argument("--all-mine", action="store_true", help="every cluster of this clone")
    add("describe", _describe, "print what cluster.json says, as of now")
    node_exec = add("node-exec", _node_exec, "run a program of this machine inside a node")
    node_exec.add_argument("node")
    node_exec.add_argument("arguments", nargs=argparse.REMAINDER)
    pids = add("pids", _pids, "list the host's process ids of a pod's container")
    for argument in ("node", "namespace", "pod"):
        pids.add_argument(argument)
    pids.add_argument("container", nargs="?")
    for name, (on_node, text) in _NODE_OPERATIONS.items():
        add(name, _on_node(on_node), text).add_argument("node")
    for name, (on_cluster, text) in _CLUSTER_OPERATIONS.items():
        add(name, _on_cluster(on_cluster), text)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except LocalClusterError as error:
        print(f"localcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
