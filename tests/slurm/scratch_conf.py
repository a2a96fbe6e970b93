"""The configuration of the scratch cluster: three sites on six virtual nodes."""

from __future__ import annotations

NODES = ("tw1", "tw2", "sky1", "delta1", "delta2", "delta8")
ACCOUNTS = ("lab", "ACD110018", "bbka-delta-gpu")  # the first is the default of the test's user

SLURM_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port_ctld}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5
MpiDefault=none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
PlugStackConfig={folder}/etc/plugstack.conf
# No cgroups: the suite runs inside containers and without root.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SlurmctldParameters=preempt_send_user_signal
SlurmctldTimeout=10
SlurmdTimeout=5
KillWait=2
InactiveLimit=0
MinJobAge=300
Waittime=0
CompleteWait=0
ReturnToService=2
TreeWidth=50
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1,bf_continue
MaxArraySize=10001
MaxJobCount=20000
JobRequeue=1
MessageTimeout={message_timeout_s}
FirstJobId={first_job_id}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{accounting}\
JobCompType=jobcomp/none
NodeName=tw[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port_tw1}-{port_tw2}] CPUs=36 Boards=1 \
SocketsPerBoard=2 CoresPerSocket=18 ThreadsPerCore=1 RealMemory=768000 Gres=gpu:v100:8
NodeName=sky1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port_sky1} CPUs=32 Boards=1 SocketsPerBoard=2 \
CoresPerSocket=16 ThreadsPerCore=1 RealMemory=256000 Gres=gpu:mi210:2
NodeName=delta[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port_delta1}-{port_delta2}] CPUs=64 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=256000 Gres=gpu:a100:4 Feature=projects,work
NodeName=delta8 NodeHostname={host} NodeAddr=127.0.0.1 Port={port_delta8} CPUs=128 Boards=1 SocketsPerBoard=2 \
CoresPerSocket=64 ThreadsPerCore=1 RealMemory=2048000 Gres=gpu:a100:8 Feature=projects,work
PartitionName=gtest Nodes=tw[1-2] MaxTime=00:30:00 DefaultTime=00:05:00 DefMemPerCPU=4000 PriorityTier=10
PartitionName=gp1d Nodes=tw[1-2] MaxTime=1-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=4000 PriorityTier=10
PartitionName=gp2d Nodes=tw[1-2] MaxTime=2-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=4000 PriorityTier=10 Default=YES
PartitionName=gp4d Nodes=tw[1-2] MaxTime=4-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=4000 PriorityTier=10
PartitionName=sky Nodes=sky1 MaxTime=1-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=4000 PriorityTier=10
PartitionName=gpuA100x4 Nodes=delta[1-2] MaxTime=2-00:00:00 DefaultTime=00:30:00 DefMemPerCPU=1000 PriorityTier=10 \
PreemptMode=OFF
PartitionName=gpuA100x4-preempt Nodes=delta[1-2] MaxTime=2-00:00:00 DefaultTime=00:30:00 DefMemPerCPU=1000 \
PriorityTier=1 PreemptMode=CANCEL GraceTime=0
PartitionName=gpuA100x4-interactive Nodes=delta[1-2] MaxTime=01:00:00 DefaultTime=00:30:00 DefMemPerCPU=1000 \
PriorityTier=1 PreemptMode=REQUEUE
PartitionName=gpuA100x8 Nodes=delta8 MaxTime=2-00:00:00 DefaultTime=00:30:00 DefMemPerCPU=1000 PriorityTier=10
"""

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port_dbd}
AccountingStoragePass={folder}/run/munge.socket
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu,gres/gpu:v100,gres/gpu:a100,gres/gpu:mi210
"""

# A GPU without a device file leaves its node INVAL, and Slurm never opens the file: any character device will do.
GRES_CONF = """\
NodeName=tw[1-2] Name=gpu Type=v100 File=/dev/tty[0-7] Flags=nvidia_gpu_env
NodeName=sky1 Name=gpu Type=mi210 File=/dev/tty[0-1] Flags=amd_gpu_env
NodeName=delta[1-2] Name=gpu Type=a100 File=/dev/tty[0-3] Flags=nvidia_gpu_env
NodeName=delta8 Name=gpu Type=a100 File=/dev/tty[0-7] Flags=nvidia_gpu_env
"""

SLURMDBD_CONF = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port_dbd}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
PidFile={folder}/run/slurmdbd.pid
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port_sql}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""

SQL_SETUP = """\
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
CREATE USER 'slurm'@'localhost' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
"""
