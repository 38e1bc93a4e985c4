# The same loop on the published games, and InversePRM there: by its search (alone, and with as many demonstrations
# beside) and by its preferences. Policy 0 of each is fine-tuning on its demonstrations.
# ALFWORLD_DATA is the folder that alfworld-download filled. Of its held-out games only valid_seen is asked for.
# InversePRM has demonstrations of an expert that knows where things usually lie. The other expert searches all places
# alike; a policy fine-tuned on it is as good as it is, so there would be nothing to learn.
# DEVICE=cuda PRECISION=bfloat16 for a GPU: more games at once. Batches keep their size, since learning rates follow from it.
# Read: data/metrics/iterations.json of each (30 actions), data/curves/NAME-50.jsonl (the same policies, 50 actions).
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
games="alfworld games.published=$ALFWORLD_DATA games.unseen=0 critic.require=nothing"
machine="compute.device=${DEVICE:-cpu} compute.precision=${PRECISION:-float32}"
if [ "${DEVICE:-cpu}" = cuda ]; then machine="$machine compute.cache_mb=16384 compute.slots=1024"; fi
longer() { # NAME POLICY:PRM…: each policy with 50 actions, searched under this PRM
  name=$1
  shift
  mkdir -p data/curves && : >"data/curves/$name-50.jsonl" || return
  for pair in "$@"; do
    for method in greedy sample best_of_16 beam_4x4; do
      case $method in
      *_*) prm="--prm data/checkpoints/prm/${pair#*:}" ;;
      *) prm= ;;
      esac
      python -m tasks.evaluate --policy "data/checkpoints/policy/${pair%:*}" $prm --method $method --games "$ALFWORLD_DATA" \
        --split valid_seen --max-turns 50 --device "${DEVICE:-cpu}" --json >>"data/curves/$name-50.jsonl"
    done
  done
}
own="policies.1.prm=2 policies.2.prm=3" # each policy is searched under the PRM of its own rollouts
sh experiments/run alfworld no_memory $games $machine $own && longer alfworld 0:1 1:2 2:3 3:3
first="-- evaluate@0 evaluate@1 evaluate@2"
search="method={name: expert_iteration, games: 3553, search: beam_1x16, keeps: expert_like, replay: 0.0, \
  learning_rate: 1.0e-3, steps: 840, batch_tokens: 2048}"
inverse="$games inverse critic.require=nothing demos.knowledge=1.0"
sh experiments/run alfworld-inverse-search no_memory $inverse "$search" $machine $first && longer alfworld-inverse-search 0:1 1:2 2:2
sh experiments/run alfworld-inverse-replay no_memory $inverse "$search" method.replay=0.5 $machine $first &&
  longer alfworld-inverse-replay 0:1 1:2 2:2
sh experiments/run alfworld-inverse-dpo no_memory $inverse $machine $first && longer alfworld-inverse-dpo 0:1 1:2 2:2
