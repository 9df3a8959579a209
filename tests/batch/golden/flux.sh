#!/bin/bash
# storm-laptop: rendered by ckptstorm VERSION.
# Time limit 8 min: 3 rounds of 1.40 GiB saved at 381 MiB/s and 1.52 GiB restored at 381 MiB/s (assumed: [storage] save_bytes_per_s says it better), times 2, and 120 s for the signal.
# flux: --job-name=storm-laptop
# flux: --nodes=2
# flux: --nslots=16
# flux: --cores-per-slot=4
# flux: --gpus-per-slot=1
# flux: --time-limit=8m
# flux: --bank=proj123
# flux: --queue=gpu
# flux: --exclusive
# flux: --output='/home/u/results/storm-laptop-{{id}}.log'
# Before the limit the storm is told to end in order: it keeps its results and cleans up.
# flux: --signal=SIGUSR1@120s

set -uo pipefail

# --- Software
results=/home/u/results
mkdir -p -- "$results" || exit 2
# Each storm has a directory of its own; it makes and removes it itself.
directory=/scratch/storm/storm-"$(flux getattr jobid)"

storm=(ckptstorm)

# --- launch NODES RANKS ARGUMENTS...: the storm's ranks; $ended is how they ended.
ended=0
launch() {
  flux run --nodes="$1" --ntasks="$2" "${storm[@]}" "${@:3}" &
  await $!
}
# Wait for the launcher, and pass a signal on to it: it tells the ranks, which end in order.
await() {
  trap "kill -TERM $1" TERM USR1
  while wait "$1"; ended=$?; kill -0 "$1" 2>/dev/null; do :; done
}

launch 2 16 \
  run laptop --dir "$directory" --results "$results"
exit "$ended"
