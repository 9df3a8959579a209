#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.39 GiB saved at 9.31 GiB/s and 1.42 GiB restored at 9.31 GiB/s (as the site says), times 2, and 120 s for the signal.
#SBATCH --job-name=storm-laptop
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=8
#SBATCH --exclusive
#SBATCH --mem=0
# One storm at a time: two would measure each other.
#SBATCH --array=0-3%1
#SBATCH --output=/home/u/results/%x-%A_%a.log
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

# --- The storms of the sweep; each has a result folder of its own.
set=()
case $SLURM_ARRAY_TASK_ID in
  0) nodes=1 ranks=4 point=ranks=4+layout.name=dcp+parallel.sharding=fsdp2 set=(--set layout.name=dcp --set parallel.sharding=fsdp2) ;;
  1) nodes=1 ranks=4 point=ranks=4+layout.name=deepspeed+parallel.sharding=zero3 set=(--set layout.name=deepspeed --set parallel.sharding=zero3) ;;
  2) nodes=2 ranks=16 point=ranks=16+layout.name=dcp+parallel.sharding=fsdp2 set=(--set layout.name=dcp --set parallel.sharding=fsdp2) ;;
  3) nodes=2 ranks=16 point=ranks=16+layout.name=deepspeed+parallel.sharding=zero3 set=(--set layout.name=deepspeed --set parallel.sharding=zero3) ;;
  *) echo "the sweep has no storm $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
results=$results/$point
# A stopped array is submitted again as it is: what is there already is not run twice.
if grep -qsE '"ended": "(complete|storage_failed)"' "$results"/*/storm.json; then
  echo "$point: its result is there already"
  exit 0
fi
launch "$nodes" "$ranks" \
  run laptop --dir "$directory" --results "$results" ${set[@]+"${set[@]}"}
exit "$ended"
