#!/usr/bin/env python3
"""Simulates several hosts on one machine, to test ranks over a slow, lossy or broken network. Linux, as root.

    tools/bench/hosts.py 2 --delay-ms 5 -- build/release/millrace run my.toml

runs the program under mpirun with one rank per host. A host is a network namespace with its own name (host0, host1,
...) and one interface, at 10.77.0.1, 10.77.0.2, ... A bridge of veths connects them or, for delay or loss, a switch
between TUN devices in this script, since few kernels of virtual machines have tc's netem. Needs iproute2 and Open MPI.
"""
import argparse
import collections
import contextlib
import ctypes
import fcntl
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import sys
import time

NETWORK = "10.77.0"
DEVICE = "eth0"
MTU = 60000  # of the TUN devices; large, as the switch wakes up for each packet


def call(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def tun_device(namespace):
    """Opens a TUN device in that namespace: reads return what its host sends, writes go to its host."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", DEVICE.encode(), 0x1001))  # TUNSETIFF: TUN, NO_PI
    finally:
        libc.setns(home, 0x40000000)
        os.close(home)
        os.close(there)
    return device


def switch(devices, delay_s, loss):
    """Delivers each packet to the host of its address after the delay. Runs until killed."""
    coming = collections.deque()
    chance = random.Random(1)
    while True:
        patience = max(0, coming[0][0] - time.monotonic()) if coming else None
        for device in select.select(devices, [], [], patience)[0]:
            packet = os.read(device, MTU + 100)
            host = packet[19] - 1 if packet[0] >> 4 == 4 else -1
            if 0 <= host < len(devices) and chance.random() >= loss:
                coming.append((time.monotonic() + delay_s, devices[host], packet))
        while coming and coming[0][0] <= time.monotonic():
            _, device, packet = coming.popleft()
            try:
                os.write(device, packet)
            except OSError:  # its interface is down: the link is cut
                pass


class Hosts:
    """A context with `count` hosts. Kills what runs on them at the end."""

    def __init__(self, count, delay_ms=0.0, loss=0.0):
        self.count, self.delay_ms, self.loss = count, delay_ms, loss
        self.names = [f"millrace{os.getpid()}h{host}" for host in range(count)]
        self.bridge = f"millrace{os.getpid()}b"
        self.switch = 0

    def __enter__(self):
        try:
            for name in self.names:
                call("ip", "netns", "add", name)
            if self.delay_ms or self.loss:
                self._switch()
            else:
                self._bridge()
            for host, name in enumerate(self.names):
                call("ip", "-n", name, "address", "add", f"{NETWORK}.{host + 1}/24", "dev", DEVICE)
                for device in ("lo", DEVICE):
                    call("ip", "-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in range(self.count):
            for process in self._all_on(host):
                with contextlib.suppress(ProcessLookupError):  # already gone
                    os.kill(process, signal.SIGKILL)
        if self.switch:
            os.kill(self.switch, signal.SIGKILL)
            os.waitpid(self.switch, 0)
        for name in (*self.names, self.bridge):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    def _switch(self):
        devices = [tun_device(name) for name in self.names]
        for name in self.names:
            call("ip", "-n", name, "link", "set", DEVICE, "mtu", str(MTU))
            # BBR, some kernels' default, paces a message by earlier ones, which can cost a round trip.
            call("ip", "netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
        self.switch = os.fork()
        if self.switch == 0:
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                os.nice(-10)  # keeps delays exact on busy cores
                switch(devices, self.delay_ms / 1e3, self.loss)
            finally:
                os._exit(1)
        for device in devices:
            os.close(device)

    def _bridge(self):
        call("ip", "netns", "add", self.bridge)
        call("ip", "-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self.bridge, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            call("ip", "-n", name, "link", "add", DEVICE, "type", "veth", "peer", f"port{host}", "netns", self.bridge)
            call("ip", "-n", self.bridge, "link", "set", f"port{host}", "master", "bridge", "up")

    def limit(self, host, mbit):
        """Limits the host's sending rate; 0: no limit."""
        limit = ["replace", "dev", DEVICE, "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "2s"]
        call("tc", "-n", self.names[host], "qdisc", *(limit if mbit else ["del", "dev", DEVICE, "root"]))

    def cut(self, host):
        call("ip", "-n", self.names[host], "link", "set", DEVICE, "down")

    def command(self, *program, ranks=0, options=()):
        """An mpirun command for `ranks` ranks of a program (0: one per host), assigned to hosts in order."""
        ranks = ranks or self.count
        shares = [(rank * self.count) // ranks for rank in range(ranks)]
        hosts = ",".join(f"{NETWORK}.{host + 1}:{shares.count(host)}" for host in range(self.count) if host in shares)
        agent = f"{sys.executable} {os.path.abspath(__file__)} --agent {self.names[0][:-1]}"
        launch = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--quiet", "-n", str(ranks), "--host", hosts,
                  "--map-by", "slot", "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include",
                  f"{NETWORK}.0/24", "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", "--mca", "btl", "self,vader,tcp"]
        return on_host(self.names[0], [*launch, *map(str, options), *map(str, program)])

    def processes(self, host):
        """The ranks' processes, by rank."""
        return {rank: process for process in self._all_on(host) if (rank := rank_of(process)) is not None}

    def _all_on(self, host):
        pids = subprocess.run(["ip", "netns", "pids", self.names[host]], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
        return [int(pid) for pid in pids.stdout.split()]


def rank_of(process):
    """The rank that mpirun gave a process; None: not a rank, or gone."""
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                return int(entry.partition(b"=")[2])
    return None


def on_host(name, command):
    host = "host" + name.rpartition("h")[2]
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh", *command]


def agent(prefix, address, *command):
    """Replaces ssh for mpirun: runs its daemon's command on the host with that address."""
    command = on_host(f"{prefix}{int(address.rpartition('.')[2]) - 1}", ["sh", "-c", " ".join(command)])
    os.execvp(command[0], command)


def main():
    if sys.argv[1:2] == ["--agent"]:
        agent(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", type=int)
    parser.add_argument("--ranks", type=int, default=0, help="default: one a host")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="one way")
    parser.add_argument("--loss", type=float, default=0.0, help="share of the packets, as 0.01")
    parser.add_argument("--mbit", type=float, default=0.0, help="that each host sends a second")
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    with Hosts(arguments.hosts, arguments.delay_ms, arguments.loss) as hosts:
        for host in range(arguments.hosts if arguments.mbit else 0):
            hosts.limit(host, arguments.mbit)
        sys.exit(subprocess.run(hosts.command(*arguments.program, ranks=arguments.ranks)).returncode)


if __name__ == "__main__":
    main()
