#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 90 min: the site's own limit.
#SBATCH --job-name=storm-laptop
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=90
#SBATCH --account=proj123
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --constraint=a100&nvme
#SBATCH --reservation=acceptance
#SBATCH --exclusive
#SBATCH --mem=102400M
#SBATCH --output=/home/u/results/%x-%j.log
# A storm that a requeue started again would meet its own files.
#SBATCH --no-requeue
# Before the limit the storm is told to end in order: it keeps its results and cleans up.
#SBATCH --signal=USR1@300

set -uo pipefail
# scancel and the time limit tell the ranks; this script waits to hear how they ended.
trap : TERM USR1

# --- Software
module load openmpi/5.0 || exit 2
export OMP_NUM_THREADS=1
results=/home/u/results
mkdir -p -- "$results" || exit 2
# Each storm has a directory of its own; it makes and removes it itself.
directory=/scratch/storm/storm-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"

# --- One archive to each node, unpacked once there: no rank imports from the shared file system.
staged=/tmp/ckptstorm-"$SLURM_JOB_ID"
each_node() { srun --mpi=none --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"; }
sbcast --force -- /proj/ckptstorm.tar "$staged.tar" &&
  each_node bash -c 'mkdir -m 700 "$1" && tar -xf "$1.tar" -C "$1"; ended=$?; rm -f -- "$1.tar"; exit $ended' _ "$staged" ||
  { echo "the packed environment could not be staged to every node" >&2; exit 2; }
trap 'each_node rm -rf -- "$staged"' EXIT
storm=("$staged/bin/python" -P -m mpi4py -m ckptstorm)

# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
# One network rail a local rank.
rails='mlx5_0:1 mlx5_1:1'
rail='n=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${FLUX_TASK_LOCAL_ID:-${SLURM_LOCALID:-0}}}}; r=($0); export UCX_NET_DEVICES="${r[n % ${#r[@]}]}"; exec "$@"'
storm=(bash -c "$rail" "$rails" "${storm[@]}")
ended=0
launch() {
  srun --mpi=pmix --nodes="$1" --ntasks="$2" --ntasks-per-node=$(( ($2 + $1 - 1) / $1 )) \
    --cpu-bind=cores --cpus-per-task=8 --mem-bind=local --distribution=block:cyclic --kill-on-bad-exit=0 --wait=30 --network=single_node_vni \
    "${storm[@]}" "${@:3}"
  ended=$?
}

launch 2 8 \
  run laptop --dir "$directory" --results "$results" --set storm.rounds=1
exit "$ended"
