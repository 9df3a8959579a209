#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.39 GiB saved at 381 MiB/s and 1.42 GiB restored at 381 MiB/s (assumed: [storage] save_bytes_per_s says it better), times 2, and 120 s for the signal.
#SBATCH --job-name=storm-laptop
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=8
#SBATCH --account="'; touch pwned; $(touch pwned) `touch pwned` \" \\ x"
#SBATCH --partition="'; touch pwned; $(touch pwned) `touch pwned` \" \\ x"
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --output="/tmp/`touch pwned`/%x-%j.log"
# A storm that a requeue started again would meet its own files.
#SBATCH --no-requeue
# Before the limit the storm is told to end in order: it keeps its results and cleans up.
#SBATCH --signal=USR1@120

set -uo pipefail
# scancel and the time limit tell the ranks; this script waits to hear how they ended.
trap : TERM USR1

# --- Software
module load ''"'"'; touch pwned; $(touch pwned) `touch pwned` " \ x' || exit 2
export HOSTILE=$'a\x0a#SBATCH --uid=0\x0a$(touch pwned)'
results='/tmp/`touch pwned`'
mkdir -p -- "$results" || exit 2
# Each storm has a directory of its own; it makes and removes it itself.
directory='/scratch/$(touch pwned)'"'"'; touch pwned;'/storm-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"

storm=(''"'"'; touch pwned; $(touch pwned) `touch pwned` " \ x')

# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
ended=0
launch() {
  srun --mpi=pmi2 --nodes="$1" --ntasks="$2" --ntasks-per-node=$(( ($2 + $1 - 1) / $1 )) \
    --cpu-bind=cores --distribution=''"'"'; touch pwned; $(touch pwned) `touch pwned` " \ x' --kill-on-bad-exit=0 --wait=30 ''"'"'; touch pwned; $(touch pwned) `touch pwned` " \ x' $'two\x0alines #SBATCH --uid=0' \
    "${storm[@]}" "${@:3}"
  ended=$?
}

launch 2 4 \
  run laptop --dir "$directory" --results "$results" --set model.name=gpt2-124m --set 'storm.allow=['"'"'warm'"'"']'
exit "$ended"
