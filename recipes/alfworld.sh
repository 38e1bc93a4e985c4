# AgentPRM and InversePRM on the published games; policy 0 of each is fine-tuning on its demonstrations. InversePRM's policy
# imitates its search without reading outcomes (alone, or beside as many demonstrations: replay), or follows its preferences.
# ALFWORLD_DATA is the folder that alfworld-download filled; of its held-out games only valid_seen is asked for.
# InversePRM has demonstrations of an expert that knows where things usually lie: it can become as good as its expert,
# and the other one, who searches all places alike, is no better than what AgentPRM starts from.
# DEVICE=cuda PRECISION=bfloat16 for a GPU: more games at once. The sizes of the batches stay: learning rates follow from them.
# Read: data/metrics/iterations.json of each (30 actions), data/curves/NAME-50.jsonl (the same policies, 50 actions).
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
inverse=$(python -m tasks.frame.profile inverse) || exit
games="-S games.source=published -S games.published_root=$ALFWORLD_DATA -S games.train=3553 -S demos.games=3553 -S rollout.games=3553 -S search.games=3553"
games="$games -S games.seen=140 -S games.unseen=0 -S compare.split=seen -S prm.require_ranking=false"
machine="-S compute.device=${DEVICE:-cpu} -S compute.precision=${PRECISION:-float32}"
if [ "${DEVICE:-cpu}" = cuda ]; then
  machine="$machine -S compute.cache_mb=16384 -S rollout.slots=1024 -S evaluate.slots=1024"
fi
longer() { # NAME POLICY:PRM…: each with 50 actions, searched under the PRM of its own rollouts where there is one
  name=$1
  shift
  mkdir -p data/curves && : >"data/curves/$name-50.jsonl" || return
  for pair in "$@"; do
    for method in greedy sample best_of_n beam; do
      python -m tasks.evaluate --policy "data/checkpoints/policy/${pair%:*}" --prm "data/checkpoints/prm/${pair#*:}" --method $method --n 16 \
        --games "$ALFWORLD_DATA" --split valid_seen --max-turns 50 --device "${DEVICE:-cpu}" --json >>"data/curves/$name-50.jsonl"
    done
  done
}
sh recipes/experiment alfworld $games $machine && longer alfworld 0:1 1:2 2:3 3:3
expert="-S demos.knowledge=1.0 evaluate@0 evaluate@1 evaluate@2"
search="-S policy.method=expert_iteration -S policy.imitates=expert_like -S policy.learning_rate=1.0e-3 -S policy.steps=840 -S policy.batch_tokens=2048"
sh recipes/experiment alfworld-inverse-search $games $machine $inverse $search $expert && longer alfworld-inverse-search 0:1 1:2 2:2
sh recipes/experiment alfworld-inverse-replay $games $machine $inverse $search -S policy.replay=0.5 $expert && longer alfworld-inverse-replay 0:1 1:2 2:2
sh recipes/experiment alfworld-inverse-dpo $games $machine $inverse $expert && longer alfworld-inverse-dpo 0:1 1:2 2:2
