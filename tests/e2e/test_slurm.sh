#!/usr/bin/env bash
# deploy/slurm/swarm.sbatch on a cluster of its own, each of its two nodes a network namespace with a slurmd: a job
# that is preempted, one that is asked to stop as before its time limit, and one that is requeued go on where they
# were; with a node killed the other peer goes on; a job that reaches its goal succeeds, and so do an array, and srun
# (and mpirun, where it is installed) without a script. As root; nothing of this machine's own Slurm is touched.
#   tests/e2e/test_slurm.sh build/release/grapevine          half a minute, without the last sentence
#   LONG=1 tests/e2e/test_slurm.sh build/release/grapevine   all of it, a minute
if [ -z "${SLURM_ALONE:-}" ]; then
    for tool in slurmctld slurmd munged sbatch ip; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed (testnet/install.sh --tests)"; exit 77; }
    done
    unshare -m true 2>/dev/null || { echo "skipped: mount namespaces are not permitted"; exit 77; }
    SLURM_ALONE=1 exec unshare -m --propagation private bash "$0" "$@"
fi
source "$(dirname "$0")/lib.sh"
batch=$(realpath "$(dirname "$0")/../../deploy/slurm/swarm.sbatch")
cd "$WORK" || exit 1
chmod 755 "$WORK"
tag=gs$$

clear_up() {
    local at pid
    for at in 1 2 0; do
        for pid in $(ip netns pids "$tag$at" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    done
    wait 2>/dev/null
    for at in 1 2 0; do ip netns del "$tag$at" 2>/dev/null; done
    rm -rf "$WORK"
}
trap clear_up EXIT

# within HOST WORD...: 0 is where slurmctld is.
within() {
    local host=$1
    shift
    ip netns exec "$tag$host" "$@"
}

ip netns add "${tag}0" 2>/dev/null || { echo "skipped: network namespaces are not permitted"; exit 77; }
ip -n "${tag}0" link set lo up
ip -n "${tag}0" link add wan type bridge
ip -n "${tag}0" addr add 203.0.113.10/24 dev wan
ip -n "${tag}0" link set wan up
for host in 1 2; do
    ip netns add "$tag$host"
    ip -n "$tag$host" link set lo up
    ip link add eth netns "$tag$host" type veth peer name "to$host" netns "${tag}0"
    ip -n "${tag}0" link set "to$host" master wan up
    ip -n "$tag$host" addr add "203.0.113.$host/24" dev eth
    ip -n "$tag$host" link set eth up
done
mkdir bin state spool.n1 spool.n2
ln -s "$GRAPEVINE" bin/grapevine
export PATH="$WORK/bin:$PATH" SLURM_CONF=$WORK/slurm.conf
printf '127.0.0.1 localhost\n203.0.113.10 %s\n203.0.113.1 n1\n203.0.113.2 n2\n' "$(hostname)" >hosts
mount --bind hosts /etc/hosts || fail "cannot have its own /etc/hosts"
(umask 077 && head -c 1024 /dev/urandom >munge.key)
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$(hostname)(203.0.113.10)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$WORK/munge.sock
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool.%n
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.%n.pid
SlurmctldLogFile=$WORK/slurmctld.err
SlurmdLogFile=$WORK/slurmd.%n.err
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=30
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/none
NodeName=n1,n2 CPUs=2 State=UNKNOWN
PartitionName=low Nodes=n1,n2 Default=YES State=UP PriorityTier=1
PartitionName=high Nodes=n1,n2 State=UP PriorityTier=10 PreemptMode=OFF
END
echo 'CgroupPlugin=cgroup/v1' >cgroup.conf # which nothing here uses
within 0 munged --foreground --force --socket="$WORK/munge.sock" --key-file="$WORK/munge.key" --pid-file="$WORK/munge.pid" \
    --log-file="$WORK/munged.log" --seed-file="$WORK/munge.seed" >munged.err 2>&1 </dev/null &
within 0 slurmctld -D >/dev/null 2>&1 </dev/null &
start_node() { within "$1" slurmd -D -N "n$1" >/dev/null 2>&1 </dev/null & }
start_node 1
start_node 2

# until_true SECONDS WORD...: the limit is only there so that a failure is one.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || { squeue 2>&1; tail -n 20 ./*.out swarm/*/log.txt ./*.err 2>/dev/null; fail "waited for: $*"; }
        sleep 0.2
    done
}
both_idle() { [[ $(within 0 timeout 5 sinfo --noheader --format='%D %t' 2>/dev/null) == '2 idle' ]]; }
state_is() { [[ $(within 0 squeue --noheader --jobs="$1" --format=%T) == "$2" ]]; }
# last KEY PEER: of the last line of its metrics, 0: none yet.
last() {
    local line
    line=$(tail -n 1 "swarm/$2/metrics.jsonl" 2>/dev/null)
    [[ $line == *\"$1\":* ]] || { echo 0; return; }
    line=${line#*\"$1\":}
    line=${line%%[,\}]*}
    echo "${line%%.*}"
}
# at_least KEY NUMBER PEER...
at_least() {
    local key=$1 number=$2 peer
    shift 2
    for peer; do (($(last "$key" "$peer") >= number)) || return 1; done
}
have_begun_again() { # have_begun_again TIMES
    local peer
    for peer in 0.0 0.1; do (($(grep -c 'resuming from' "swarm/$peer/log.txt") >= $1)) || return 1; done
}
# A requeued job waits for two minutes, unless told otherwise; while it is still being cleared away it is not told.
begins_now() {
    within 0 scontrol update jobid="$1" StartTime=now 2>/dev/null
    state_is "$1" RUNNING
}
restart() {
    until_true 120 state_is "$1" PENDING
    until_true 120 begins_now "$1"
}
submit() { within 0 sbatch --parsable --exclusive --output="$WORK/%x.out" "$@"; }
flags=(--data digits --model mlp --report-every 200ms --checkpoint-every 1h --threads 1)

until_true 60 both_idle
job=$(submit --job-name=long "$batch" "${flags[@]}" --steps 1000000000)
until_true 120 at_least rounds_ok 2 0.0 0.1
echo "two peers average, $SECONDS s"

# Preempted.
steps=$(last own_steps 0.0)
other=$(submit --job-name=urgent --partition=high --nodes=2 --wrap "until [ -e $WORK/over ]; do sleep 0.1; done")
until_true 120 state_is "$other" RUNNING
for peer in 0.0 0.1; do [ -s swarm/$peer/state.safetensors ] || fail "the preempted peer $peer left no checkpoint"; done
touch over
restart "$job"
until_true 120 have_begun_again 1
until_true 120 at_least own_steps "$((steps + 1))" 0.0
until_true 120 at_least neighbours 1 0.0 0.1
echo "a preempted job goes on, $SECONDS s"

# Asked to stop as --signal does it before the time limit: the script requeues the job.
steps=$(last own_steps 0.1)
within 0 scancel --signal=TERM "$job"
restart "$job"
until_true 120 have_begun_again 2
until_true 120 at_least own_steps "$((steps + 1))" 0.1
until_true 120 at_least neighbours 1 0.0 0.1
echo "a job whose time is up goes on, $SECONDS s"

# A node is gone with all that ran on it.
for pid in $(ip netns pids "${tag}2"); do kill -9 "$pid"; done
alone() { [ "$(last neighbours 0.0)" = 0 ]; }
until_true 120 alone
steps=$(last own_steps 0.0)
until_true 120 at_least own_steps "$((steps + 100))" 0.0
state_is "$job" RUNNING || fail "the job ended with one of its nodes"
echo "the other goes on without a killed node, $SECONDS s"
start_node 2
within 0 scontrol requeue "$job"
restart "$job"
until_true 120 at_least neighbours 1 0.0 0.1
within 0 scancel "$job"
until_true 120 both_idle
echo "a requeued job goes on with both, $SECONDS s"

[ "${LONG:-0}" = 1 ] || { echo "jobs of Slurm go on after what may happen to them; LONG=1 runs some to their end, $SECONDS s"; exit 0; }

# To the end, in an array, and without a script.
SWARM=goal submit --wait --job-name=short "$batch" "${flags[@]}" --steps 2000 >/dev/null || fail "a job that reached its goal failed"
SWARM=many submit --wait --job-name=array --nodes=1 --array=0-1 "$batch" "${flags[@]}" --steps 3000 --start-with 2 >/dev/null ||
    fail "an array failed"
printf 'n1:7077\nn2:7077\n' >nodes
words=(grapevine peer --swarm-key swarm/swarm.key --bootstrap @nodes --shard-of '{rank}/{ranks}' "${flags[@]}" --steps 2000)
within 0 srun --nodes=2 "${words[@]}" --out 'srun/{rank}' >srun.out 2>&1 || fail "srun"
for out in goal/0.{0,1} many/{0,1}.0 srun/{0,1}; do
    grep -q '"rounds_ok":[1-9]' "$out/metrics.jsonl" || fail "$out never averaged"
done
grep -q '^shard-of *= *1/2' srun/1/config.ini || fail "no shard by rank: $(grep shard srun/1/config.ini)"
if command -v mpirun >/dev/null; then
    mpirun --allow-run-as-root --oversubscribe -n 2 grapevine peer --data digits --steps 5 --averaging none --listen 127.0.0.1:0 \
        --shard-of '{rank}/{ranks}' --out 'mpi/{rank}' >mpi.out 2>&1 || fail "mpirun"
    grep -q '^shard-of *= *1/2' mpi/1/config.ini || fail "no shard by mpirun's rank"
    echo "mpirun: two peers"
fi
echo "jobs of Slurm go on after what may happen to them, $SECONDS s"
