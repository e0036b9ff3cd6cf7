"""A Slurm of one node on the loopback interface, from Debian's packages: no systemd, no cgroups, fake GPUs, real accounting.

By hand, as root: python tests/cluster/slurm.py start FOLDER · python tests/cluster/slurm.py stop FOLDER
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge", "mariadb-server")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "slurmdbd", "munged", "mariadbd")
SYSTEM = Path("/etc/slurm")
"""Where the clients look for their configuration."""
PORTS = {"slurmctld": 26817, "slurmd": 26818, "slurmdbd": 26819}
GPUS, CPUS, MEMORY = 4, 4, 16000

SLURM_CONF = """
ClusterName=loopback
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={munge}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state/slurmctld
SlurmdSpoolDir={folder}/state/slurmd
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0
GresTypes=gpu
MinJobAge=300
KillWait=10
SlurmdTimeout=20
MessageTimeout=10
InactiveLimit=0
ReturnToService=2
JobRequeue=0
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={munge}
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations
NodeName=localhost NodeAddr=127.0.0.1 Port={slurmd} CPUs={cpus} CoresPerSocket={cpus} RealMemory={memory} Gres=gpu:fake:{gpus}
PartitionName=cpu Nodes=localhost Default=YES DefMemPerCPU=500 DefaultTime=10 MaxTime=60 State=UP
PartitionName=gpu Nodes=localhost DefMemPerCPU=500 DefaultTime=10 MaxTime=60 State=UP
"""

DATABASE_CONF = """
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=accounting
"""


class Unavailable(Exception):
    """This machine cannot have a Slurm; the message says why."""


def install() -> None:
    """Debian's packages, where they are absent; Unavailable where that cannot be."""
    if os.geteuid() != 0:
        raise Unavailable("a Slurm of one's own needs root")
    if all(shutil.which(program) for program in PROGRAMS):
        return
    if not shutil.which("apt-get"):
        raise Unavailable("Slurm is not installed and there is no apt-get")
    quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True, "text": True}
    subprocess.run(["apt-get", "update", "-q"], **quiet)
    done = subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES], **quiet)
    if done.returncode != 0:
        raise Unavailable(f"apt-get cannot install Slurm: {done.stderr.strip().splitlines()[-1:]}")


class Cluster:
    """The daemons of one cluster, each with its files below `folder`; `down` and `up` are what failures are made of."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.munge = folder / "run/munge/socket"
        self.sql = folder / "run/sql/socket"
        self.names = {"folder": folder, "munge": self.munge, "cpus": CPUS, "memory": MEMORY, "gpus": GPUS} | PORTS

    def start(self) -> "Cluster":
        install()
        self._folders()
        self._configure()
        for name in ("munged", "mariadbd"):
            self.up(name)
        self._database()
        self.up("slurmdbd")
        self._account()
        for name in ("slurmctld", "slurmd"):
            self.up(name)
        return self

    def stop(self) -> None:
        """End all jobs, then all daemons."""
        if self._pid("slurmctld"):
            with contextlib.suppress(subprocess.SubprocessError, TimeoutError):
                self.ask("scancel", "--user=root")
                self._wait("end of all jobs", lambda: not self.ask("squeue", "-h"))
        for name in ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            self.down(name)
        for name in ("slurm.conf", "gres.conf", "slurmdbd.conf"):
            link = SYSTEM / name
            if link.is_symlink() and link.resolve().is_relative_to(self.folder.resolve()):
                link.unlink()

    def up(self, name: str) -> None:
        """Start one daemon, unless it runs, and wait until it answers."""
        if self._pid(name) is None:
            with open(self.folder / f"log/{name}.out", "a") as log:
                subprocess.Popen(self._command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._wait(name, self._answers[name])

    def down(self, name: str, kill: bool = False) -> None:
        """End one daemon and wait for its end; `kill` as a crash would."""
        pid = self._pid(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        self._wait(f"end of {name}", lambda: self._pid(name) is None)

    def ask(self, *command: str) -> str:
        """What a client of Slurm prints."""
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def jobs(self, states: str = "PENDING,RUNNING") -> dict[str, str]:
        """Jobs by id and their comment, which names the rule."""
        lines = self.ask("squeue", "-h", "-t", states, "-o", "%i|%k").splitlines()
        return dict(line.split("|", 1) for line in lines)

    def _folders(self) -> None:
        for part in (
            "conf",
            "log",
            "dev",
            "state/slurmctld",
            "state/slurmd",
            "run/munge",
            "state/munge",
            "run/sql",
            "state/sql",
        ):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        for place in [self.folder, *self.folder.parents]:
            with contextlib.suppress(OSError):
                place.chmod(place.stat().st_mode | 0o011)
        for part, owner in (("run/munge", "munge"), ("state/munge", "munge"), ("run/sql", "mysql"), ("state/sql", "mysql")):
            shutil.chown(self.folder / part, owner, owner)
        (self.folder / "state/munge").chmod(0o700)

    def _configure(self) -> None:
        conf = self.folder / "conf"
        (conf / "slurm.conf").write_text(SLURM_CONF.format(**self.names))
        (conf / "slurmdbd.conf").write_text(DATABASE_CONF.format(**self.names))
        (conf / "slurmdbd.conf").chmod(0o600)
        lines = []
        for number in range(GPUS):
            device = self.folder / f"dev/gpu{number}"
            if not device.is_char_device():
                os.mknod(device, 0o20666, os.makedev(1, 3))
            lines.append(f"NodeName=localhost Name=gpu Type=fake File={device}\n")
        (conf / "gres.conf").write_text("AutoDetect=off\n" + "".join(lines))
        SYSTEM.mkdir(exist_ok=True)
        for file in conf.iterdir():
            place = SYSTEM / file.name
            if place.exists() and not place.samefile(file):
                raise Unavailable(f"{place.resolve()} belongs to another Slurm")
            place.unlink(missing_ok=True)
            place.symlink_to(file)
        key = self.folder / "state/munge/key"
        if not key.exists():
            key.write_bytes(os.urandom(1024))
            shutil.chown(key, "munge", "munge")
            key.chmod(0o400)

    def _database(self) -> None:
        grant = (
            "create database if not exists accounting; create user if not exists 'slurm'@'localhost' identified by 'slurm'; "
            "grant all on accounting.* to 'slurm'@'localhost'"
        )
        self.ask("mariadb", "-S", str(self.sql), "-e", grant)

    def _account(self) -> None:
        if "loopback" not in self.ask("sacctmgr", "-n", "show", "cluster", "format=cluster"):
            self.ask("sacctmgr", "-i", "add", "cluster", "loopback")
            self.ask("sacctmgr", "-i", "add", "account", "lab", "Cluster=loopback", "Description=lab", "Organization=lab")
            self.ask("sacctmgr", "-i", "add", "user", "root", "Account=lab", "DefaultAccount=lab")

    def _command(self, name: str) -> list[str]:
        folder = self.folder
        munged = ["munged", "--foreground", "--force", f"--socket={self.munge}", f"--key-file={folder}/state/munge/key"]
        munged += [f"--pid-file={folder}/run/munge/pid", f"--seed-file={folder}/state/munge/seed"]
        munged += [f"--log-file={folder}/state/munge/log"]
        sql = f"--datadir={folder}/state/sql"
        if name == "mariadbd" and not (folder / "state/sql/mysql").exists():
            make = ["mariadb-install-db", "--no-defaults", "--user=mysql", sql, "--skip-test-db"]
            subprocess.run(make, capture_output=True, check=True)
        mariadbd = ["mariadbd", "--no-defaults", "--user=mysql", sql, f"--socket={self.sql}", "--skip-networking"]
        mariadbd += [f"--pid-file={folder}/run/sql/pid", "--innodb-buffer-pool-size=64M"]
        return {
            "munged": ["setpriv", "--reuid=munge", "--regid=munge", "--init-groups", *munged],
            "mariadbd": mariadbd,
            "slurmdbd": ["env", f"MYSQL_UNIX_PORT={self.sql}", "slurmdbd", "-D"],
            "slurmctld": ["slurmctld", "-D"],
            "slurmd": ["slurmd", "-D"],
        }[name]

    @property
    def _answers(self) -> dict[str, list[str]]:
        """A command for each daemon that succeeds once it answers."""
        return {
            "munged": ["sh", "-c", f"munge -S {self.munge} -n | unmunge -S {self.munge}"],
            "mariadbd": ["mariadb", "-S", str(self.sql), "-e", "select 1"],
            "slurmdbd": ["sacctmgr", "-n", "show", "cluster"],
            "slurmctld": ["sh", "-c", "scontrol ping | grep -q UP"],
            "slurmd": ["sh", "-c", "sinfo -h -p cpu -o %T | grep -qE '^(idle|mixed|allocated)$'"],
        }

    def _pid(self, name: str) -> int | None:
        """Process id of a daemon that lives."""
        file = {"munged": "run/munge/pid", "mariadbd": "run/sql/pid"}.get(name, f"run/{name}.pid")
        try:
            pid = int((self.folder / file).read_text())
            return pid if Path(f"/proc/{pid}/comm").read_text().startswith(name[:15]) and not self._ended(pid) else None
        except (OSError, ValueError):
            return None

    @staticmethod
    def _ended(pid: int) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        return False

    def _wait(self, what: str, answers, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = answers() if callable(answers) else subprocess.run(answers, capture_output=True, timeout=30).returncode == 0
            if done:
                return
            time.sleep(0.2)
        raise TimeoutError(f"{what} does not answer; logs lie in {self.folder}/log")


def main() -> None:
    order, folder = sys.argv[1:]
    getattr(Cluster(Path(folder).resolve()), order)()


if __name__ == "__main__":
    main()
