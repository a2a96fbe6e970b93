"""What passes the check of sbatch's options is what Slurm sees; what does not is refused before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from login_node import LoginNode, job_id
from rights import mounted
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.sbatch_values import valid_values

pytestmark = pytest.mark.slurm

ASKED = (
    "submit", "--cluster=taiwania2", "--account=ACD110018", "--method=z3", "--model=tiny", "--partition=gtest",
    "--gpus-per-node=0", "--set=precision=fp32", "--sbatch=hold",
)  # fmt: skip


@pytest.fixture(scope="module")
def node(slurm: ScratchSlurm, site: ScratchSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginNode]:
    login = LoginNode(tmp_path_factory.mktemp("asking"), slurm)
    site.write_profiles(login.folder)
    yield login
    login.ask("cancel", *runs_of(login))


def runs_of(node: LoginNode) -> list[str]:
    return sorted(path.name for path in node.logs.glob("[!.]*"))


def seen(node: LoginNode, *words: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    """What Slurm says of the held job of a request."""
    said = {word.rpartition("=")[0] for word in words if word.startswith("--set=")}
    [run] = node.submit(*(word for word in ASKED[1:] if word.rpartition("=")[0] not in said), *words, environ=environ)
    text = node.slurm.run("scontrol", "--oneliner", "show", "job", job_id(run))
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def test_where_files_run_out_the_number_of_the_job_is_told_or_that_there_is_no_room(node: LoginNode) -> None:
    told = []
    for inodes in range(11, 16):
        with mounted(node.folder / f"disk-{inodes}", f"8m,nr_inodes={inodes}") as disk:
            done = node.ask(*ASKED, "--run-id=q", f"--logs={disk.folder / 'logs'}")
            if done.returncode:
                assert re.search("No space left on device|cannot be written", done.stderr), done.stderr
                assert "only one process" not in done.stderr
                continue
            [number] = re.findall(r"^q  (\S+)$", done.stdout, re.MULTILINE)
            told.append(number)
            assert node.slurm.run("squeue", "-h", "-j", number, "-o", "%i").strip() == number
            node.slurm.run("scancel", number)
    assert told


def test_slurm_sees_the_options_that_pass_and_nothing_of_the_shell(node: LoginNode) -> None:
    options = {
        "nice=7": ("Nice", "7"),
        "exclude=sky1": ("ExcNodeList", "sky1"),
        "--no-requeue": ("Requeue", "0"),
        "mem=5G": ("MinMemoryNode", "5G"),
        "begin=now+1hour": ("Reason", "JobHeldUser"),
    }
    words = [f"--sbatch={option}" for option in options]
    shell = {"SBATCH_PARTITION": "gp4d", "SBATCH_TIMELIMIT": "99", "SBATCH_EXCLUSIVE": "user", "SBATCH_NICE": "3"}
    job = seen(node, *words, "--time=00:07:00", "--nodes=2", environ=shell)
    for name, value in options.values():
        assert job[name] == value
    assert (job["Partition"], job["TimeLimit"], job["NumNodes"]) == ("gtest", "00:07:00", "2-2")
    assert job["OverSubscribe"] == "OK"


def test_of_a_sum_of_gpus_slurm_is_told_what_each_node_gives(node: LoginNode, site: ScratchSite) -> None:
    gpu = load_cluster("taiwania2").gpu.model_dump(mode="json")
    node.add_cluster("sums", **{**site.profile("taiwania2"), "gpu": gpu, "request": {"gpu_style": "gpus", "extra": []}})
    two, one = (
        seen(node, "--cluster=sums", "--gpus-per-node=3", "--set=precision=fp16", f"--nodes={nodes}")
        for nodes in (2, 1)
    )
    assert two["TresPerNode"].endswith("gpu:3") and "TresPerJob" not in two
    assert one["TresPerJob"].endswith("gpu:3")


def test_a_shells_variables_are_said_to_have_no_effect(node: LoginNode) -> None:
    done = node.ask(*ASKED, "--dry-run", environ={"SBATCH_PARTITION": "gp4d", "SBATCH_ACCOUNT": "ACD1"})
    assert "SBATCH_PARTITION of this shell has no effect on the job" in done.stderr
    assert "SBATCH_ACCOUNT of" not in done.stderr


@pytest.mark.parametrize("option", ["-N2", "nod=2", "-t 99", "--array=0-1", "qos=a"])
def test_what_sbatch_would_take_and_the_plan_would_not_know_is_refused(node: LoginNode, option: str) -> None:
    before = runs_of(node)
    twice = ["--sbatch=qos=b"] if option == "qos=a" else []
    done = node.ask(*ASKED, f"--sbatch={option}", *twice)
    said = [line for line in done.stderr.splitlines() if "in place of the one that hpc-llm brings" not in line]
    assert done.returncode == 2 and done.stdout == "" and len(said) == 1, done.stderr
    assert runs_of(node) == before


def test_another_clusters_slurm_gets_no_job_unless_it_is_forced(node: LoginNode, site: ScratchSite) -> None:
    before = runs_of(node)
    node.add_cluster("elsewhere", **site.profile("taiwania2"), slurm_cluster=["twnia2", "twnia2-gpu"])
    words = (*ASKED, "--cluster=elsewhere")
    for more in ((), ("--dry-run",)):
        done = node.ask(*words, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith(
            "hpc-llm: this Slurm is scratch, cluster elsewhere is twnia2 or twnia2-gpu. Is this a login node of elsewhere? "
            "--force submits all the same.\n"
        )
    assert runs_of(node) == before
    done = node.ask(*words, "--force")
    assert done.returncode == 0, done.stderr
    assert (
        "hpc-llm: --force, although this Slurm is scratch, cluster elsewhere is twnia2 or twnia2-gpu\n" in done.stderr
    )
    node.add_cluster("here", **site.profile("taiwania2"), slurm_cluster="scratch")
    node.do(*ASKED, "--cluster=here")


def test_what_this_slurm_does_not_have_is_refused(node: LoginNode, site: ScratchSite) -> None:
    done = node.ask(*ASKED, "--partition=express")
    assert done.returncode == 2
    assert "this Slurm is scratch and has no partition express, it has gp1d, gp2d, gp4d," in done.stderr
    parts = [{"name": name, "max_time": "UNLIMITED"} for name in ("alpha", "beta")]
    node.add_cluster("other", **site.profile("taiwania2"), partitions=parts)
    for partition in ((), ("--partition=alpha",)):
        done = node.ask(*(word for word in ASKED if "partition" not in word), "--cluster=other", *partition)
        assert done.returncode == 2
        assert "and has none of the partitions of cluster other (alpha, beta), it has gp1d," in done.stderr
    wide = [{"name": "gtest", "max_time": "UNLIMITED"}]
    node.add_cluster("wide", **site.profile("taiwania2"), partitions=wide)
    done = node.ask(*ASKED, "--cluster=wide", "--nodes=3")
    assert (done.returncode, "3 nodes are asked for, partition gtest has 2." in done.stderr) == (2, True)
    done = node.ask(*ASKED, "--cluster=wide", "--time=01:00:00")
    assert (done.returncode, "01:00:00 is asked for, partition gtest allows 00:30:00." in done.stderr) == (2, True)
    less = (
        "Ask for less with --time, or name another --partition; or submit from a login node of wide, if this is none."
    )
    assert less in done.stderr and "--force submits all the same" in done.stderr
    node.add_cluster("scratch", **site.profile("taiwania2"), partitions=[], qos=[])
    for wrong, way in (
        ("--partition=Gtest", "Did you mean 'gtest'? Name it, or another, with --partition."),
        ("--partition=qqqqq", "Name one of these with --partition."),
        ("--nodes=3", "Ask for fewer with --nodes, or name another --partition."),
        ("--time=01:00:00", "Ask for less with --time, or name another --partition."),
    ):
        done = node.ask(*ASKED, "--cluster=scratch", wrong)
        assert done.returncode == 2 and done.stderr.endswith(f"{way}\n"), done.stderr
        assert "login node" not in done.stderr and "--force" not in done.stderr
    done = node.ask(*ASKED, "--cluster=wide", "--time=01:00:00", "--sbatch=qos=long", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_a_partition_that_the_profile_or_slurm_lacks_is_answered_with_what_both_have(
    node: LoginNode, site: ScratchSite
) -> None:
    parts = [{"name": name, "max_time": "UNLIMITED"} for name in ("gone", "gtest", "sky")]
    node.add_cluster("halves", **site.profile("taiwania2"), partitions=parts)
    file = node.folder / "clusters" / "halves.yaml"
    words = [word for word in ASKED if "partition" not in word and "cluster" not in word]
    lacks = node.ask(*words, "--cluster=halves", "--partition=gone")
    assert lacks.returncode == 2 and "has no partition gone, it has gp1d, gp2d," in lacks.stderr
    assert "Name one with --partition that cluster halves has too: gtest, sky" in lacks.stderr
    assert (
        f"Others are added first under `partitions:` of {file}." in lacks.stderr and "Did you mean" not in lacks.stderr
    )
    unknown = node.ask(*words, "--cluster=halves", "--partition=gp4d")
    assert unknown.returncode == 2
    assert f"One that the site has besides is added under `partitions:` of {file}" in unknown.stderr
    done = node.ask(*words, "--cluster=halves", "--partition=gtest", "--dry-run")
    assert done.returncode == 0, done.stderr
    file.write_text(
        file.read_text().replace("- max_time: UNLIMITED\n  name: gone", "- {max_time: UNLIMITED, name: gp4d}")
    )
    done = node.ask(*words, "--cluster=halves", "--partition=gp4d", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_an_environment_that_is_not_there_does_not_wait_for_the_job_to_die(node: LoginNode, site: ScratchSite) -> None:
    profile = site.profile("taiwania2")
    before = runs_of(node)
    for env, said in (
        (
            str(site.folder / "gone"),
            f"there is no {site.folder}/gone here, which prelude.python.env of cluster no-such names.",
        ),
        ("by-name", "prelude.python.env is the name 'by-name', and no environment of that name is found here."),
    ):
        node.add_cluster("no-such", **{**profile, "prelude": {**profile["prelude"], "python": {"env": env}}})
        for more in ((), ("--dry-run",)):
            done = node.ask(*ASKED, "--cluster=no-such", *more)
            assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr
    assert runs_of(node) == before


def test_what_a_held_job_waits_for_is_said_once(node: LoginNode) -> None:
    [run] = node.submit(*ASKED[1:])
    for words in (("logs", "-f", run.run_id), ("submit", *ASKED[1:], "--wait")):
        process = node.start(*words)
        assert process.stderr is not None
        read: list[str] = []
        while not any("waits: JobHeldUser: it is held" in line for line in read):
            read.append(process.stderr.readline())
            assert read[-1], read
        node.ask("cancel", *runs_of(node))
        assert process.wait(timeout=150) == (3 if "--wait" in words else 0)
        assert "JobHeldUser" not in process.stderr.read()


VALUES = {
    "mail-type": ("end", "ALL,NONE", "BEGIN,TIME_LIMIT_80", "WHENEVER", "BEGIN END"),
    "begin": (
        "now+2hours", "tomorrow", "fika", "12:00", "2027-01-20T12:34", "20:30:15", "01/20", "01/20/27", "2027-01-20", "now+60", "teatime",
        "now+3days", "4:30PM", "WHENEVER", "now+1x", "25:00", "next week", "16:00PMs", "2027-13-01", "2027-01-32", "13/01", "01/32", "130127",
        "2027-00-10", "2027-01-00", "121227",
        "now+30min", "now+5m", "now+2h", "now+5s", "now+1sec", "now+1secs", "now+10mins", "now+1d", "now+1w", "now+1hourss", "now+1month", "now+hour",
        "now+", "now+1.5hours", "now+1hours5", "now tomorrow", "tomorrow now", "now+10 tomorrow", "now+1second", "now+1HOURS", "Now + 5 minutes",
        "now+1 0", "now-1day", "NOW", "now+999999999999", "now-99999999999", "now+1hour 12:00",
        "TODAY", "Tomorrow", "TEATIME", "tODAY", "tOMORROW", "Noon", "FIKA", "MIDNIGHT", "tomorrownoon", "noon tomorrow", "tomorrow 12:00", "fikaT",
        "2027-1-20", "2027-1-2", "2027-01-2", "2027-01-2T12:00", "2027-01-20t09:05", "2027-01-20-09:05", "2027-01-20 09:05", "2027-01-2009:05",
        "1/20/2027", "12/5", "12/5/", "12/5/2", "1.20", "1.20.27", "0120", "0120T1:00", "01201", "01201:00", "012012:00", "120", "12", "010100",
        "0000-01-01", "1969-12-31", "9999-12-31",
        "13:00pm", "13:00am", "12:00am", "12:00pm", "0:00pm", "4:30 pm", "4:30   PM", "4:30p", "24:00", "23:59", "1:2", "1:02", "1:02:3", "1:02:03",
        "1:60", "1:02:60", "16:00-16:01", "T", "-", "uts1900000000", "UTS 1900000000", "uts1", "uts-5", "uts1900000000x",
    ),
    "deadline": (
        "2027-01-20T12:34", "now+2hours", "soon", "2027-13-01", "13/01/27", "2028-02-29", "now+40min", "now+2h", "TOMORROW", "2027-1-20",
    ),
    "cpu-freq": (
        "high", "HIGH", "hig", "highm1", "him1", "highm2", "low", "lo", "medium", "mediu", "1000", "1000x", "1000-2000", "1000-1000", "1000-high",
        "low-high", "low-high:ondemand", "low-highm1", "high-highm1", "performance", "perf", "OnDemand", "userspace", "99999999999",
        "foo", "h", "m", "p", "0", "2000-1000", "high-low", "high-1000", "highm1-high", "1000:ondemand", "1000-2000:foo", "1000-2000:",
        "performance:performance", "performance-1000", "low-performance", "1000-", "-1000", "medium-low", "ondemand:",
    ),
    "extra-node-info": (
        "1", "1:1:1", "*", "*:*", "1:*", "2-4", "2-4:1", "1:1:1:1", ":", ":1", "1:", "1::1", "+1", "**", "1-1", "x", "1:x", "1:1:x", "-1", "1x",
        "99999999999", "1-:1", "max",
    ),
    "acctg-freq": (
        "network=5", "filesystem=5", "FileSystem=5", "energy=0", "network=5x", "network=-5", "network=5,,energy=0", ",", "xnetwork=5", "1.5",
        "foo", "-1", "task=x", "task", "task=", "tasks=5", "networkx=5", "network=5,foo", "foo,energy=0", "network=-1",
    ),
    **dict.fromkeys(("sockets-per-node", "cores-per-socket", "ntasks-per-socket", "thread-spec"), ("1", "0", "-1", "1k", "+1", "01", "x")),
    "core-spec": ("0", "1", "+1", "-1", "x"),
    "distribution": (
        "block", "cyclic", "plane=4", "*", "*:*", "block:cyclic", "block:fcyclic", "*:*:*", "BLOCK:Cyclic:block", "block,Pack", "*,NoPack", "pack",
        "block:", "block:cyclic:cyclic,NOPACK", "PLANE=4", "foo", "block:foo", "block,foo", "plane", "plane=x", "plane=0", "fcyclic", "cyc",
        "block:cyclic:cyclic:block", "plane=4:cyclic", "Pack,block",
    ),
    "gpu-bind": (
        "closest", "none", "per_task:2", "single:2", "map_gpu:0,1", "map_gpu:0*2", "mask_gpu:0x3,0x1", "verbose,closest", "VERBOSE,Closest", "close",
        "Single:1", "verbose,map_gpu:0,1", "closest,verbose", "foo", "single", "verbose", "v,closest", "per_gpu:1", "map_gpu:foo", "verbose,foo",
    ),
    "gpu-freq": (
        "low", "highm1", "1500", "verbose", "high,memory=low", "memory=high", "low,verbose", "verbose,low,memory=900", "foo", "LOW", "memory=foo",
        "video=1", "highm2", "1500x", "1.5",
    ),
    "nice": ("0", "7", "-5", "+5", "2147483645", "-2147483645", "2147483646", "-2147483646", "99999999999", "9" * 40, "99999999999x", "x"),
    "priority": ("0", "10", "TOP", "4294967293", "4294967294", "-1"),
    "dependency": (
        "afterok:1", "afterok:1:2", "after:1+5", "after:1+5:2", "AFTEROK:1", "afternotok:1", "aftercorr:1", "afterburstbuffer:1", "afterany:1_2",
        "afterok:1_*", "afterok:1_[1-3]", "singleton", "singleton,afterok:1", "afterok:1?afterany:2", "1", "1,2", "1_2", "afterok:1,2", "0",
        "afterok:x", "after:1+x", "foo:1", "1:2", "afterok", "afterok:", "afterok:1_x", "afterok:1,", ",afterok:1", "afterok=1", "singleton:1", "x",
        "afterok:1x", "afterok:1:", "afterok:1;afterany:2", "none",  # of both separators in one sbatch says yes or no by the jobs that there are
    ),
    "mem-bind": ("local", "none", "verbose,local", "prefer,local", "map_mem:0,1", "mask_mem:0x1", "q", "foo", "loc", "map:0"),
    "gres-flags": ("disable-binding", "Enforce-Binding", "enforce", "foo"),
    "delay-boot": ("0", "10", "00:05:00", "1-00", "unlimited", "x", "1x"),
    "hint": ("nomultithread", "compute_bound", "fast"),
    "open-mode": ("append", "truncate", "x"),
    "kill-on-invalid-dep": ("yes", "no", "maybe"),
    "wait-all-nodes": ("0", "1", "5"),
    "profile": ("task,energy", "ALL", "steps"),
    "threads-per-core": ("1", "x", "0"),
    "ntasks-per-core": ("1", "one", "0"),
    "exclusive": ("user", "mcs", "USER", "true", "yes", "1"),
    "no-kill": ("off", "true"),
    "propagate": ("STACK", "ALL", "NONE", "STACK,CORE", "STACK,,CORE", "STACK,", "stack", "FOO", "NONE,ALL", "STACK,ALL", "ALL,NONE"),
    "mincpus": ("2", "two", "0"),
    "tmp": ("0", "0G", "0g", "0GB", "64GiB", "1.5G", "all"),  # the nodes say of no disk
    "switches": ("1", "01", "+1", "1@00:10:00", "1@x", "1@", "one", "0", "00@5", "1k"),
    "get-user-env": ("10", "10L", "yes"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(VALUES))
def test_the_values_that_pass_are_those_that_sbatch_knows(name: str, slurm: ScratchSlurm) -> None:
    passed = {value: valid_values(name, value) is None for value in VALUES[name]}
    assert set(passed.values()) == {True, False}
    known = {value: slurm.ok("sbatch", "--test-only", f"--{name}={value}", "--wrap=true") for value in VALUES[name]}
    assert passed == known


def test_options_of_which_sbatch_refuses_two_together_are_refused(node: LoginNode, slurm: ScratchSlurm) -> None:
    for words in (["core-spec=1", "thread-spec=1"], ["thread-spec=1", "core-spec=1"]):
        assert not slurm.ok("sbatch", "--test-only", *(f"--{word}" for word in words), "--wrap=true")
        done = node.ask(*ASKED, "--dry-run", *(f"--sbatch={word}" for word in words))
        assert done.returncode == 2 and "exclude each other. Keep one of them." in done.stderr, done.stderr


def test_a_day_that_does_not_exist_is_refused_though_slurm_takes_another_for_it(
    node: LoginNode, slurm: ScratchSlurm
) -> None:
    for value in ("2027-02-30", "2027-02-29", "2/30", "023027", "11/31", "2027-04-31T12:00", "12:00 6.31.27"):
        assert slurm.ok("sbatch", "--test-only", f"--begin={value}", "--wrap=true")
        done = node.ask(*ASKED, "--dry-run", f"--sbatch=begin={value}")
        assert done.returncode == 2 and "there is no such day, and Slurm would take one of" in done.stderr, done.stderr
    for value in ("2028-02-29", "022928"):
        assert node.ask(*ASKED, "--dry-run", f"--sbatch=begin={value}").returncode == 0


@pytest.mark.parametrize("name", ["a%jb", "%t", "x/%A/y", "50%a"])
def test_a_folder_in_which_a_number_would_be_filled_in_is_refused_before_anything_is_made(
    node: LoginNode, name: str
) -> None:
    folder = node.folder / "numbered" / name
    for more in (["--method=z2,z3"], [], ["--dry-run"]):
        done = node.ask(*ASKED, f"--logs={folder}", *more)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "holds %j, %t, %a or %A, which submitit takes for the job's number: use another --logs." in done.stderr
        assert not (node.folder / "numbered").exists()
