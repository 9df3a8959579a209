#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.40 GiB saved at 9.31 GiB/s and 1.52 GiB restored at 9.31 GiB/s (as the site says), times 2, and 120 s for the signal.
#SBATCH --job-name=storm-laptop
#SBATCH --nodes=2
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

storm=(ckptstorm)

# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
ended=0
launch() {
  srun --mpi=pmi2 --nodes="$1" --ntasks="$2" --ntasks-per-node=$(( ($2 + $1 - 1) / $1 )) \
    --cpu-bind=cores --kill-on-bad-exit=0 --wait=30 \
    "${storm[@]}" "${@:3}"
  ended=$?
}

# --- Two jobs: the first saves; the second, submitted by the first, restores on any nodes.
# Where compute nodes may not submit: sbatch --dependency=afterany:SAVE_JOB --exclude=ITS_NODES THIS_SCRIPT restore DIRECTORY
if [ "${1:-save}" = save ]; then
  launch 2 16 \
    run laptop --only save --dir "$directory" --results "$results"
  # 1: a limit was missed; the checkpoint is there all the same.
  if [ "$ended" -le 1 ]; then
    next=$(sbatch --parsable --dependency=afterany:"$SLURM_JOB_ID" "$0" restore "$directory") &&
      echo "$next" > "$results/split-$SLURM_JOB_ID.next" && echo "the restore is job $next"
  fi
else
  launch 2 16 \
    run laptop --only restore --from "$2" --results "$results"
fi
exit "$ended"
