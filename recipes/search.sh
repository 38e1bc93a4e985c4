# Success against compute: every search under five PRMs of the same policy's rollouts, on floor plans never trained on.
# No branched states: of the five only AgentPRM-A and Monte Carlo labels could learn from them.
# With ALFWORLD_DATA (the folder that alfworld-download filled) also on the published valid_seen.
# Read: data/curves/*/curves.json and curves.png.
prms=.scratch/recipes/search
promise="-S label.credit=gae -S prm.loss=promise_progress"
one() { # NAME -S …: the PRM of this experiment, kept under its name; none of an earlier run where this one fails
  name=$1
  shift
  rm -rf "$prms/$name"
  sh recipes/experiment "search-$name" -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 "$@" prm@1 &&
    mkdir -p "$prms" && cp -rL data/checkpoints/prm/1 "$prms/$name"
}
one agentprm_b $promise
one agentprm_a
one orm -S prm.loss=outcome
one pvm $promise -S prm.beta=0
one mc -S label.credit=branching -S rollout.games=450 # an eighth of the rollouts, played on 4 times from every turn: many times the sampled tokens
curves() { # OUT GAMES SPLIT
  python -m tasks.search_curves --policy data/checkpoints/policy/0 --games "$2" --split "$3" --out "data/curves/$1" \
    --prm agentprm_b=$prms/agentprm_b --prm agentprm_a=$prms/agentprm_a --prm orm=$prms/orm --prm pvm=$prms/pvm \
    --prm mc=$prms/mc
}
curves unseen data/games unseen
if [ -n "${ALFWORLD_DATA:-}" ]; then curves valid_seen "$ALFWORLD_DATA" valid_seen; fi
