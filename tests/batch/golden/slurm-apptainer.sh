#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.40 GiB saved at 9.31 GiB/s and 1.45 GiB restored at 9.31 GiB/s (as the site says), times 2, and 120 s for the signal.
#SBATCH --job-name=storm-laptop
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --time=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --output=/home/u/results/%x-%j.log
# A storm that a requeue started again would meet its own files.
#SBATCH --no-requeue
# Before the limit the storm is told to end in order: it keeps its results and cleans up.
#SBATCH --signal=USR1@120

set -uo pipefail
# scancel and the time limit tell the ranks; this script waits to hear how they ended.
trap : TERM USR1

# --- Software
results=/home/u/results
mkdir -p -- "$results" || exit 2
# Each storm has a directory of its own; it makes and removes it itself.
directory=/scratch/storm/storm-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"

mkdir -p -- /scratch/storm
storm=(apptainer exec --bind /scratch/storm --bind /home/u/results --bind /etc/libibverbs.d /proj/c.sif ckptstorm)

# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
ended=0
launch() {
  srun --mpi=pmi2 --nodes="$1" --ntasks="$2" --ntasks-per-node=$(( ($2 + $1 - 1) / $1 )) \
    --cpu-bind=cores --kill-on-bad-exit=0 --wait=30 \
    "${storm[@]}" "${@:3}"
  ended=$?
}

launch 1 8 \
  run laptop --dir "$directory" --results "$results"
exit "$ended"
