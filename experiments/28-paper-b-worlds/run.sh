# Paper B's figure in its worlds: every search under five PRMs of the same policy's rollouts, and under a placebo, the Monte
# Carlo PRM trained on permuted labels. 200 held-out games a world. No branched states, as in 06: of the five only monte_carlo
# and playing_on could learn from them.
#
#     sh experiments/28-paper-b-worlds/run.sh                 # all four worlds
#     WORLDS=webshop sh experiments/28-paper-b-worlds/run.sh  # one of them
#     SEEDS="2 3" sh experiments/28-paper-b-worlds/run.sh     # other games, another policy and other rollouts
#
# Read: curves.json and curves.png of data/curves/WORLD-SEED and data/curves/WORLD-SEED-path.
one() { # NAME WORD…: the PRM of this experiment, kept under its name; none of an earlier run where this one fails
  name=$1
  shift
  rm -rf "${prms:?}/$name"
  sh experiments/run "curves-$world-$seed-$name" no_memory seed=$seed "$world" $numbers "$@" compute.threads=1 critic.require=nothing \
    games.train=12800 $own -- prm@1 && mkdir -p "$prms" && cp -rL data/checkpoints/prm/1 "$prms/$name"
}
curves() { # OUT OPTION…
  out=$1
  shift
  python -m tasks.commands.search_curves --policy data/checkpoints/policy/0 --games data/games --split $split \
    --max-action-tokens $tokens --best-of 8,16,32,64 --beams 2x2,4x4,8x8 --out "data/curves/$out" --prm agentprm_b=$prms/agentprm_b \
    --prm agentprm_a=$prms/agentprm_a --prm pvm=$prms/pvm --prm orm=$prms/orm --prm mc=$prms/mc --prm placebo=$prms/placebo "$@"
}
own="rollout.branch.train_states=0 rollout.branch.random_states=0 rollout.branch.validation_states=200 rollout.branch.continuations=6"
for world in ${WORLDS:-webshop textcraft babyai arithmetic}; do for seed in ${SEEDS:-1}; do
  prms=.scratch/experiments/curves/$world-$seed split=unseen tokens=32
  case $world in
  webshop) numbers="demos.games=1000 sft.epochs=4.6 rollout.games=3600" ;;
  textcraft) numbers="demos.games=4000 rollout.games=3600" ;;
  babyai) numbers="demos.games=2000 sft.epochs=4" tokens=16 ;;
  arithmetic) numbers="" split=seen tokens=8 ;; # of unseen orders of operations the policy wins too few to tell PRMs apart
  esac
  one agentprm_b promise_progress
  one pvm promise_progress critic.beta=0.0
  one orm outcome
  one mc playing_on # an eighth of the rollouts, played on 4 times from every turn
  rm -rf "$prms/placebo"
  THEN="python -m benchmarks.placebo_prm --campaign . --iteration 1 --out $prms/placebo" one agentprm_a
  curves "$world-$seed"
  curves "$world-$seed-path" --path-prior --likelihood # whole episodes and beams judged by all of their actions, and by the likelihood alone
done; done
# TextCraft's agent that comes with the package: whole episodes judged by the last action, then by all. Read: success in both lines.
case " ${WORLDS:-textcraft} " in *" textcraft "*)
  for judged in "" --path-prior; do
    python -m tasks.evaluate --policy shipped:textcraft --prm shipped:textcraft --split unseen --limit 200 \
      --method best_trajectory --n 16 $judged --json
  done
  ;;
esac
