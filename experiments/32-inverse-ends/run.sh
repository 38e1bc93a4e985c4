# InversePRM where the world tells the end of an episode and where nothing does, with failures alone as negatives, by its
# search and by its preferences. The controls keep what ended early, or go on with the demonstrations for as many steps.
# Published and generated games together, measured on floor plans that nothing was trained on and on others.
# ALFWORLD_DATA is the folder that alfworld-download filled.
#
#     sh experiments/32-inverse-ends/run.sh             # one seed
#     SEEDS="1 2 3" sh experiments/32-inverse-ends/run.sh
#
# Read: the tables that are printed last, of all games and of those on new floor plans; the line of the demonstrations.
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
kept=.scratch/experiments/inverse-ends
equal="no_memory alfworld_rooms inverse games.published.root=$ALFWORLD_DATA demos.knowledge=1.0 demos.games=4000 rollout.games=3600
  compute.threads=1 critic.require=nothing evaluate.decoding=[greedy,sample]"
imitates() { # KEEPS [REPLAY [STEPS]]: the method that imitates those of its searched episodes, and a share of demonstrations
  echo "method={name: expert_iteration, games: 3600, search: beam_1x16, keeps: $1, replay: ${2:-0.0}, learning_rate: 1.0e-3, \
steps: ${3:-840}, batch_tokens: 2048}"
}
one() { # NAME WORD…: this experiment, and what it measured kept under its name
  name=$1 folder=$kept/$1-$seed
  shift
  rm -rf "${folder:?}" && mkdir -p "$folder/data"
  THEN="cp params.yaml $folder/ && cp -rL data/evaluations data/metrics $folder/data/ && ${also:-:}" \
    sh experiments/run "inverse-ends-$name-$seed" $equal seed=$seed "$@" -- evaluate@0 evaluate@1 ${second:-}
}
for seed in ${SEEDS:-1}; do
  also="python -m benchmarks.updates --campaign . --keep data/longer --steps 840 --arms demonstrations &&
    python -m benchmarks.updates --campaign . --keep data/longest --steps 1680 --arms demonstrations"
  one told "$(imitates expert_like)"
  also=
  one cut critic.ends=cut "$(imitates expert_like_cut)"
  one early "$(imitates ended_early)"
  one lost critic.negatives=lost "$(imitates expert_like)"
  one dpo
  one dpocut critic.ends=cut
  one replay critic.ends=cut "$(imitates expert_like_cut 0.5)"
  second=evaluate@2
  one longer critic.ends=cut "$(imitates expert_like_cut 0.5 1680)" # and a second iteration
  second=
  one likelihood critic.ends=cut critic.likelihood=0.3 critic.learning_rate=1.0e-4 critic.prior=0.0 "$(imitates expert_like_cut)"
done
folders=$(for folder in "$kept"/*-*; do name=${folder##*/}; echo "${name%-*}=$folder"; done)
for split in "" "--split unseen"; do
  python -m benchmarks.side_by_side $folders --over early $split
done
