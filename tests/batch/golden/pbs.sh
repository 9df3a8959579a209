#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.40 GiB saved at 381 MiB/s and 1.52 GiB restored at 381 MiB/s (assumed: [storage] save_bytes_per_s says it better), times 2, and 120 s for the signal.
#PBS -N storm-laptop
#PBS -l select=2:mpiprocs=8:ncpus=32:ngpus=8
#PBS -l place=scatter:excl
#PBS -l walltime=00:08:00
#PBS -A proj123
#PBS -q gpu
# A storm that was started again would meet its own files.
#PBS -r n
#PBS -j oe

set -uo pipefail

# --- Software
results=/home/u/results
mkdir -p -- "$results" || exit 2
cd -- "$results" || exit 2
# Each storm has a directory of its own; it makes and removes it itself.
directory=/scratch/storm/storm-"${PBS_JOBID%%.*}"

storm=(ckptstorm)

# PBS sends no signal before its limit: timeout tells the storm to end in order 120 s before.
# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
ended=0
launch() {
  timeout --foreground --preserve-status --signal=TERM 360 \
  mpirun -n "$2" "${storm[@]}" "${@:3}"
  ended=$?
}

launch 2 16 \
  run laptop --dir "$directory" --results "$results"
exit "$ended"
