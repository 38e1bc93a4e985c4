# Do the other worlds climb too? One campaign each, with one thread. Arithmetic is the profile as it is, and with more
# games searched. WebShop has a quarter and half of the demonstrations. BabyAI has few demonstrations and three iterations,
# a wide beam of its first policy, and first policies of many demonstrations, the reader's and the bot's.
# "demonstrated" says how many rollouts' games had a demonstration.
one="compute.threads=1"
# The profiles as they are, with two threads: what make run PROFILE=babyai does.
for profile in babyai arithmetic; do
  THEN="python -m benchmarks.side_by_side $profile=." sh experiments/run $profile-profile $profile
done
for profile in webshop:1200 textcraft:1800; do # and as many steps as the iterations take
  THEN="python -m benchmarks.side_by_side ${profile%:*}=. &&
    python -m benchmarks.updates --campaign . --keep data/longer --steps ${profile#*:} --arms demonstrations &&
    python -m benchmarks.updates --campaign . --keep data/updates --arms prm,untrained_likelihood,rft --all" \
    sh experiments/run ${profile%:*}-profile ${profile%:*}
done
THEN='python -m benchmarks.side_by_side arithmetic=. --out data/climb.png && python -m benchmarks.ranking_matrix --campaign .' \
  sh experiments/run arithmetic-full no_memory arithmetic $one
THEN='python -m benchmarks.updates --campaign . --keep data/updates --games 6000 --steps 840 \
    --arms prm,untrained_likelihood,constant,demonstrations &&
  python -m benchmarks.updates --campaign . --keep data/longer --steps 4800 --arms demonstrations' \
  sh experiments/run arithmetic-more no_memory arithmetic more_searches $one
beside() { # NAME STEPS: commands that compare policies, and that train on the demonstrations alone for as long
  echo "python -m benchmarks.side_by_side $1=."
  echo "python -m benchmarks.updates --campaign . --keep data/longer --steps $2 --arms demonstrations"
}
shop="rollout.games=1500 rollout.branch.train_states=60 rollout.branch.random_states=600"
shop="$shop rollout.branch.validation_states=120 rollout.branch.continuations=4 critic.require=nothing"
shop="$shop method.games=2000 method.search=beam_4x4 method.steps=400 demos.games=1000 sft.epochs=4.6 games.train=22000"
by="evaluate.decoding=[greedy,beam_8x8,beam_8x8_by_untrained_likelihood,beam_8x8_by_constant]"
THEN=$(beside webshop 1200) sh experiments/run webshop-few no_memory webshop $one $shop
fewer="$shop rollout.games=2000 method.games=2500 method.steps=500 demos.games=400 sft.epochs=9"
THEN=$(beside webshop 1500) sh experiments/run webshop-400 no_memory webshop $one $fewer \
  "evaluate.decoding=[greedy,best_of_16,best_of_16_by_untrained_likelihood,beam_8x8]"
sh experiments/run webshop-few-8x8 no_memory webshop $one $shop $by -- evaluate@0
sh experiments/run webshop-half no_memory webshop $one demos.games=2000 sft.epochs=2.3 games.train=22000 -- sft && for split in seen unseen; do
  python -m benchmarks.handover --policy data/checkpoints/policy/0 --games data/games/$split.parquet --split $split
done
sh experiments/run webshop-4000 no_memory webshop $one $shop demos.games=4000 sft.epochs=2.3 \
  "evaluate.decoding=[greedy,best_of_16,best_of_16_by_untrained_likelihood,beam_8x8,beam_8x8_path,beam_8x8_by_untrained_likelihood,beam_8x8_by_constant]" \
  -- evaluate@0
sh experiments/run arithmetic-alone no_memory arithmetic $one sft.observation_weight=0.0 -- rollout@1
for rate in 1.5e-4 5e-5; do # read data/metrics/stages/prm-1.json
  sh experiments/run "arithmetic-$rate" no_memory arithmetic $one "critic.learning_rate=$rate" -- prm@1
done
few="demos.games=2000 sft.epochs=4 games.train=12800 rollout.games=1200 rollout.branch.train_states=150"
few="$few rollout.branch.random_states=600 critic.batch_tokens=2048 critic.require=nothing method.games=2400 method.steps=500
  method.search=beam_4x4"
THEN=$(beside babyai 1500) sh experiments/run babyai-few no_memory babyai $one $few
sh experiments/run babyai-8x8 no_memory babyai $one $few $by -- evaluate@0
sh experiments/run babyai-reader no_memory babyai $one demos.games=8000 sft.epochs=3 games.train=19700 -- sft
sh experiments/run babyai-bot no_memory babyai $one "demos.games={count: 8000, by: bot}" sft.epochs=2.5 -- sft
craft="critic.require=nothing rollout.games=2400 rollout.branch.train_states=100 rollout.branch.random_states=600"
craft="$craft rollout.branch.validation_states=150 rollout.branch.continuations=4 method.games=3000 method.steps=600
  method.search=beam_4x4"
THEN=$(beside textcraft 1800) sh experiments/run textcraft-three no_memory textcraft more_demonstrations $one $craft
wide="evaluate.decoding=[greedy,beam_8x8,beam_8x8_by_untrained_likelihood,beam_8x8_by_constant]"
sh experiments/run textcraft-8x8 no_memory textcraft more_demonstrations $one $craft $wide -- evaluate@0
large="rollout.games=3600 rollout.branch.train_states=200 rollout.branch.random_states=3000"
large="$large rollout.branch.validation_states=200 rollout.branch.continuations=6 method.games=3600 method.steps=840"
sh experiments/run textcraft-plan no_memory textcraft $one $large "demos.games={count: 10000, by: plan}" -- evaluate@0
THEN=$(beside textcraft 2520) sh experiments/run textcraft-4000 no_memory textcraft $one $large demos.games=4000
more="$craft method.games=4000 method.steps=800 sft.observation_weight=0.0 evaluate.decoding=[greedy]"
THEN='python -m benchmarks.side_by_side textcraft=. &&
  python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games \
    --split seen,unseen --limit 200 --searches best_of_16 --scorers prm,untrained_likelihood --prior 0.1,0' \
  sh experiments/run textcraft-alone no_memory textcraft more_demonstrations $one $more
all="games.train=60000 games.seen=500 games.unseen=500 demos.games=30000 sft.epochs=3 critic.require=nothing rollout.games=2500
  rollout.branch.train_states=150 rollout.branch.random_states=600 rollout.branch.validation_states=300
  rollout.branch.continuations=4 method.games=4000 method.steps=800 method.search=beam_4x4 evaluate.decoding=[greedy]"
THEN='python -m benchmarks.transfer --campaign . --split unseen --limit 100' \
  sh experiments/run all-worlds no_memory all_worlds $one $all
sh experiments/run all-worlds-plain no_memory all_worlds $one $all model.heads=8 -- evaluate@0
# The agent that comes with the package in a wide beam, on the held-out goals of the campaign that it is from.
THEN="python -m benchmarks.placebo --policy shipped:webshop --prm shipped:webshop --games data/games --split seen,unseen \
  --searches beam_8x8,beam_8x8_path --scorers prm,constant,random --prior 0.1 --threads 1" sh experiments/run webshop-few-beams no_memory webshop $one \
  $shop -- games
