# AgentPRM and InversePRM on the published games; iteration 0 is fine-tuning on the same demonstrations.
# ALFWORLD_DATA is the folder that alfworld-download filled; of its held-out games only valid_seen is asked for.
# DEVICE=cuda PRECISION=bfloat16 for a GPU: more games at once. The sizes of the batches stay: learning rates follow from them.
# Read: data/metrics/iterations.json of each.
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
inverse=$(python -m tasks.profile inverse) || exit
games="-S games.source=published -S games.published_root=$ALFWORLD_DATA -S games.train=3553 -S demos.games=3553 -S rollout.games=3553 -S search.games=3553"
games="$games -S games.seen=140 -S games.unseen=0 -S compare.split=seen -S prm.require_ranking=false"
machine="-S compute.device=${DEVICE:-cpu} -S compute.precision=${PRECISION:-float32}"
if [ "${DEVICE:-cpu}" = cuda ]; then
  machine="$machine -S compute.cache_mb=16384 -S rollout.slots=1024 -S evaluate.slots=1024"
fi
for turns in 30 50; do
  sh recipes/experiment "alfworld-$turns" $games $machine -S env.max_turns=$turns
  sh recipes/experiment "alfworld-inverse-$turns" $games $machine $inverse -S env.max_turns=$turns
done
