# Success against compute: every search under five PRMs of the same policy's rollouts, on floor plans never trained on.
# No branched states: of the five only monte_carlo and playing_on could learn from them.
# With ALFWORLD_DATA (the folder that alfworld-download filled) also on the published valid_seen.
# Read: data/curves/*/curves.json and curves.png.
prms=.scratch/experiments/search
one() { # NAME WORD…: the PRM of this experiment, kept under its name; none of an earlier run where this one fails
  name=$1
  shift
  rm -rf "${prms:?}/$name"
  sh experiments/run "search-$name" no_memory "$@" rollout.branch.train_states=0 rollout.branch.random_states=0 -- prm@1 &&
    mkdir -p "$prms" && cp -rL data/checkpoints/prm/1 "$prms/$name"
}
one agentprm_b promise_progress
one agentprm_a seed=1
one orm outcome
one pvm promise_progress critic.beta=0.0
one mc playing_on # an eighth of the rollouts, played on 4 times from every turn: many times the sampled tokens
curves() { # OUT GAMES SPLIT
  python -m tasks.commands.search_curves --policy data/checkpoints/policy/0 --games "$2" --split "$3" --out "data/curves/$1" \
    --prm agentprm_b=$prms/agentprm_b --prm agentprm_a=$prms/agentprm_a --prm orm=$prms/orm --prm pvm=$prms/pvm \
    --prm mc=$prms/mc
}
curves unseen data/games unseen
if [ -n "${ALFWORLD_DATA:-}" ]; then curves valid_seen "$ALFWORLD_DATA" valid_seen; fi
