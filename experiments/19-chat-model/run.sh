# Does a chat model that is made here learn? And what does it do when it is asked to explore, to say why,
# to keep to an instruction? Read: data/metrics/stages/rollout-1.json and prm-1.json, data/metrics/evaluate-0.json and
# evaluate-1.json, and the JSON object that benchmarks.chat_model prints. The control is chat-demonstrations' evaluate-0.json.
[ -d models/chat ] || python -m tasks.commands.make_chat_model --out models/chat --worlds arithmetic --expert distracted --knowledge 0.3 --lost \
  --dialogues 16000 --steps 900 --threads 1
sh experiments/run chat chat # what make run PROFILE=chat runs
# The demonstrations alone, for as many steps as the second policy had in all.
alone="compute.threads=1 rollout.branch.train_states=0 rollout.branch.validation_states=0 evaluate.decoding=[greedy,sample]"
sh experiments/run chat-distracted-demonstrations chat $alone sft.epochs=20.75 -- evaluate@0
# Online DPO by the PRM on the same rollouts, pairs drawn once, by each trainer.
for trainer in ours trl; do
  sh experiments/run chat-distracted-$trainer chat online_dpo method.preference=winner method.refresh_every=120 method.margin=0.0 method.trainer=$trainer \
    -- evaluate@0 evaluate@1
done
# Online DPO with a stronger anchor, by a PRM that reads the likelihood. chat-placebo's PRM has next to no training, so that it is the policy's own likelihood.
# The same rollouts: DVC plays them once. π₀ and π₁ of each were played by agentprm evaluate on the games of seeds 77 and 78.
wide="chat chat_preferences compute.threads=1 evaluate.decoding=[greedy,sample]"
once="method.trainer=trl method.refresh_every=60"
sh experiments/run chat-prefers $wide -- evaluate@0 evaluate@1
sh experiments/run chat-prefers-trl $wide $once -- evaluate@1
sh experiments/run chat-placebo $wide $once critic.learning_rate=1.0e-9 critic.epochs=0.02 -- evaluate@1
sh experiments/run chat-prefers-soon $wide critic.gamma=0.8 -- evaluate@1
sh experiments/run chat-prefers-soon-trl $wide $once critic.gamma=0.8 -- evaluate@1
sh experiments/run chat-prefers-wins $wide method.imitation=10.0 method.learning_rate=2.0e-3 method.steps=75 method.batch_tokens=8192 method.refresh_every=15 -- evaluate@1
sh experiments/run chat-same-wins chat compute.threads=1 critic.likelihood=0.3 rollout.branch.train_states=600 rollout.branch.validation_states=150 \
  "evaluate.decoding=[greedy,sample]" -- evaluate@1
# A distracted model of two million parameters: four PRMs on the same rollouts, and online DPO by them. chat-untrained's PRM has next to no training,
# so that it is the policy's own likelihood: the placebo.
[ -d models/small ] || python -m tasks.commands.make_chat_model --out models/small --size medium --worlds arithmetic --expert distracted --knowledge 0.3 --lost \
  --dialogues 16000 --steps 1200 --threads 1
small="model.source=./models/small compute.threads=1 compute.precision=float32 rollout.games=4000 games.seen=400 evaluate.decoding=[greedy,sample] critic.require=nothing"
prefer="chat chat_preferences $small"
sh experiments/run chat-preferences $prefer -- evaluate@0 evaluate@1
sh experiments/run chat-preferences-trl $prefer $once -- evaluate@1
sh experiments/run chat-untrained $prefer $once critic.learning_rate=1.0e-9 critic.epochs=0.02 -- evaluate@1
sh experiments/run chat-no-likelihood $prefer $once critic.likelihood=0.0 -- evaluate@1
sh experiments/run chat-preferences-fast $prefer method.trainer=trl method.refresh_every=120 method.steps=120 method.learning_rate=1.0e-3 -- evaluate@1
sh experiments/run chat-preferences-soft $prefer method.preference=soft method.beta=0.05 method.samples=8 method.refresh_every=4 method.steps=120 -- evaluate@1
sh experiments/run chat-preferences-wins $prefer method.imitation=1.0 method.learning_rate=1.0e-3 method.refresh_every=5 -- evaluate@1
branches="rollout.branch.train_states=600 rollout.branch.random_states=0 rollout.branch.validation_states=150"
sh experiments/run chat-small-wins chat $small $branches -- evaluate@1
for likelihood in 0.0 0.3; do
  sh experiments/run chat-relative-$likelihood chat relative $small $branches critic.likelihood=$likelihood critic.learning_rate=1.0e-3 critic.epochs=6 \
    critic.batch_tokens=8192 -- prm@1
done
# A model of fewer dialogues, all of episodes that were won by an expert that nothing distracts.
[ -d models/few ] || python -m tasks.commands.make_chat_model --out models/few --worlds arithmetic --dialogues 2500 --steps 600 --threads 1
sh experiments/run chat-fewer-dialogues chat model.source=./models/few
# Other sizes, which all the runs below have where they do not name others.
sizes="rollout.games=4500 critic.learning_rate=5.0e-4 critic.epochs=0.15"
wins="$sizes method.learning_rate=1.0e-3 method.steps=150"
# 400 held-out games: with one thread and no PRM, the demonstrations for as many steps as its first iteration, and with a PRM and both cores, a third iteration.
few="model.source=./models/few $wins rollout.games=5000 games.train=16400 games.seen=400"
alone="compute.threads=1 sft.batch_tokens=8192 rollout.branch.train_states=0 rollout.branch.validation_states=0 evaluate.decoding=[greedy,sample]"
sh experiments/run chat-few-large chat $few $alone -- evaluate@0 evaluate@1 evaluate@2
sh experiments/run chat-few-large-demonstrations chat $few $alone sft.epochs=20.75 -- evaluate@0
sh experiments/run chat-few-again chat $few iterations.3.prev=2 policies.3.prm=3 -- evaluate@0 evaluate@1 evaluate@2 evaluate@3
sh experiments/run chat-few-faster chat model.source=./models/few $wins iterations.3.prev=2 policies.3.prm=3 rollout.games=4000 games.train=13600 method.learning_rate=3.0e-3 method.steps=75 \
  critic.epochs=0.1
sh experiments/run chat-few-longer chat model.source=./models/few $wins rollout.games=5000 critic.learning_rate=3.0e-3 critic.epochs=0.35
# A campaign of another seed, the profile's sizes without a PRM.
sh experiments/run chat-seed-2 chat model.source=./models/few seed=2 compute.threads=1 rollout.branch.train_states=0 rollout.branch.validation_states=0 "evaluate.decoding=[greedy,sample]" -- evaluate@0 evaluate@1 evaluate@2
# Households whose messages do not list the commands.
[ -d models/unlisted ] || python -m tasks.commands.make_chat_model --out models/unlisted --size medium --worlds alfworld-unlisted --dialogues 2500 --steps 900 --threads 1
sh experiments/run chat-unlisted chat model.source=./models/unlisted env.world=alfworld-unlisted env.code=agentprm_core/worlds/alfworld env.max_turns=30 \
  model.context=2048 games.unseen=200 rollout.branch.train_states=0 rollout.branch.validation_states=0 compute.threads=1 "evaluate.decoding=[greedy,sample]" -- evaluate@0
# Still fewer dialogues, and problems in which every sentence matters.
[ -d models/chat-1200 ] || python -m tasks.commands.make_chat_model --out models/chat-1200 --worlds arithmetic --dialogues 1200 --steps 500 --threads 1
[ -d models/plain ] || python -m tasks.commands.make_chat_model --out models/plain --worlds arithmetic-plain --dialogues 2500 --steps 500 --threads 1
[ -d models/plain-sums ] || python -m tasks.commands.make_chat_model --out models/plain-sums --size medium --worlds arithmetic-plain --dialogues 2500 --steps 900 --threads 1
alone="compute.threads=1 rollout.branch.train_states=0 rollout.branch.validation_states=0 evaluate.decoding=[greedy,sample]"
sh experiments/run chat-1200 chat model.source=./models/chat-1200 $alone rollout.temperature=0.8 -- evaluate@0 evaluate@1
for model in plain plain-sums; do
  sh experiments/run "chat-$model" chat model.source=./models/$model $alone -- evaluate@0
done
# What the training of a PRM does to its worth: on the rollouts of chat-few-again. Then its choice among actions and among whole episodes.
for critic in "5.0e-4 8192 0.15" "3.0e-3 8192 0.15" "3.0e-3 2048 0.3" "1.0e-3 8192 0.6" "3.0e-3 8192 0.6"; do
  set -- $critic
  sh experiments/run "chat-prm-$1-$2-$3" chat $few compute.threads=1 critic.learning_rate=$1 critic.batch_tokens=$2 critic.epochs=$3 -- prm@1
done
python -m tasks.commands.search_curves --policy data/checkpoints/policy/0 --prm trained=data/checkpoints/prm/1 --games data/games --split seen --free \
  --max-action-tokens 64 --best-of 2,4,8 --beams 1x2 --likelihood --out data/curves
sh experiments/run chat-prm-ranking chat $few compute.threads=1 rollout.branch.validation_states=200 rollout.branch.continuations=6 critic.learning_rate=1.0e-3 critic.epochs=0.6 -- prm@1
[ -d models/more ] || python -m tasks.commands.make_chat_model --out models/more --worlds arithmetic --dialogues 16000 --steps 900 --threads 1
more="chat model.source=./models/more"
sh experiments/run chat-more-dialogues $more $wins
sh experiments/run chat-5000 $more $wins rollout.games=5000 critic.epochs=0.25
[ -d models/between ] || python -m tasks.commands.make_chat_model --out models/between --worlds arithmetic --dialogues 16000 --steps 650 --threads 1
sh experiments/run chat-between chat $wins model.source=models/between compute.threads=1
# Several episodes of a game: all wins, or those of games that were lost as well.
for keeps in won undecided; do
  sh experiments/run chat-$keeps $more $wins rollout.games=2400 rollout.episodes_per_game=4 games.train=5200 games.seen=400 method.keeps=$keeps \
    "evaluate.decoding=[greedy,sample]" -- evaluate@0 evaluate@1
done
# Online DPO on pairs that are drawn once, by each trainer.
dpo="chat online_dpo $sizes model.source=models/between compute.threads=1 method.preference=winner method.imitation=0 method.refresh_every=120 method.margin=0.0"
sh experiments/run chat-between-trl $dpo method.trainer=trl -- evaluate@0 evaluate@1 rollout@2 # its gate refuses the rollouts
sh experiments/run chat-between-ours $dpo method.trainer=ours -- evaluate@0 evaluate@1
# A policy gradient that plays anew every 12 steps. Read `refreshed` of data/metrics/stages/policy-1.json.
fresh="rollout.games=64 rollout.branch.train_states=0 rollout.branch.validation_states=0 method.keeps=undecided method.batch_tokens=8192"
sh experiments/run chat-loop $more loop $sizes $fresh games.seen=400 method.learning_rate=2.0e-4 "method.refresh={every: 12, games: 64}" method.steps=360 \
  "evaluate.decoding=[greedy,sample]" -- evaluate@0 evaluate@1
# A model of three worlds, a third iteration, and the demonstrations for as many steps as the first one.
[ -d models/worlds ] || python -m tasks.commands.make_chat_model --out models/worlds --dialogues 28000 --steps 1700 \
  --worlds arithmetic textcraft arithmetic babyai arithmetic textcraft arithmetic
three="chat $wins model.source=models/worlds compute.threads=1 evaluate.decoding=[greedy,sample]"
sh experiments/run chat-worlds $three iterations.3.prev=2 policies.3.prm=3
sh experiments/run chat-worlds-demonstrations $three sft.epochs=20.75 -- evaluate@0
python -m benchmarks.chat_model --model models/chat --world arithmetic --games 100 --max-turns 10 --threads 1
python -m benchmarks.chat_model --model models/worlds --world textcraft --games 100 --threads 1
python -m benchmarks.chat_model --model models/worlds --world arithmetic --games 100 --max-turns 10 --threads 1
size="$wins games.train=16400 games.seen=300 rollout.games=8000 method.steps=180 critic.epochs=0.25"
sh experiments/run chat-large $more $size -- evaluate@0 evaluate@1 evaluate@2
sh experiments/run chat-large-demonstrations $more $size compute.threads=1 sft.epochs=24 -- evaluate@0
[ -d models/sums ] || python -m tasks.commands.make_chat_model --out models/sums --size medium --worlds arithmetic --dialogues 16000 \
  --steps 1200 --threads 1
[ -d models/babyai ] || python -m tasks.commands.make_chat_model --out models/babyai --size medium --worlds babyai
sums="$sizes model.source=./models/sums games.train=8000 sft.batch_tokens=8192 critic.epochs=1 compute.threads=1"
four="demos.games=200 rollout.games=2000 rollout.episodes_per_game=4 rollout.branch.train_states=0 rollout.branch.validation_states=0
  evaluate.decoding=[greedy,sample]"
fewer="demos.games=500 rollout.games=1000 rollout.episodes_per_game=4 critic.epochs=2"
sh experiments/run chat-wins chat $wins $sums $four method.steps=160 iterations.2.prev=1 policies.2.prm=2 -- evaluate@0 evaluate@1 evaluate@2
sh experiments/run chat-once chat $wins $sums games.train=16400 games.seen=400 rollout.games=8000 method.steps=240 -- evaluate@0 evaluate@1
sh experiments/run chat-grpo chat grpo $sums rollout.games=2000 rollout.episodes_per_game=4 method.batch_tokens=8192 method.steps=150 \
  method.learning_rate=5.0e-4 method.beta=0.02 games.seen=400 -- evaluate@1
sh experiments/run chat-demonstrations chat $wins $sums $four sft.epochs=24 -- evaluate@0
[ -d models/usual ] || python -m tasks.commands.make_chat_model --out models/usual --worlds arithmetic --dialogues 12000
sh experiments/run chat-usual chat $wins model.source=./models/usual games.train=8000 games.unseen=50 critic.epochs=1 sft.batch_tokens=4096 rollout.games=1000 \
  rollout.episodes_per_game=3 method.steps=72 -- evaluate@0 evaluate@1
sh experiments/run chat-more chat $wins $sums $fewer method.steps=80 -- evaluate@0 evaluate@1
sh experiments/run chat-dpo chat online_dpo $sums $fewer method.learning_rate=3.0e-4 method.steps=60 method.samples=4 method.imitation=0.1 \
  method.refresh_every=4 -- evaluate@1
sh experiments/run chat-babyai chat babyai $wins model.source=./models/babyai env.max_turns=20 games.train=4000 demos.games=400 sft.batch_tokens=8192 \
  sft.observation_weight=0.0 \
  model.context=4096 model.max_action_tokens=64 model.reason_tokens=0 rollout.games=300 rollout.episodes_per_game=2 \
  rollout.branch.train_states=0 rollout.branch.validation_states=0 compute.threads=1 -- rollout@1
python -m benchmarks.chat_model --model models/babyai --games 100 --threads 1
# The same world: what a model of more dialogues learns from its wins.
[ -d models/babyai-4000 ] || python -m tasks.commands.make_chat_model --out models/babyai-4000 --size medium --worlds babyai --dialogues 4000 --steps 700 --threads 1
sh experiments/run chat-babyai-wins chat babyai $wins model.source=./models/babyai-4000 env.max_turns=20 model.context=4096 games.train=8000 games.seen=200 games.unseen=200 \
  demos.games=400 sft.observation_weight=0.0 rollout.games=2000 rollout.branch.train_states=0 rollout.branch.validation_states=0 compute.threads=1 \
  method.steps=75 method.learning_rate=3.0e-3 "evaluate.decoding=[greedy,sample]" -- evaluate@0 evaluate@1
for rate in 1.0e-4 5.0e-4; do
  sh experiments/run chat-loop-sums-$rate chat loop $sizes $fresh model.source=./models/sums games.train=8000 games.seen=400 rollout.games=32 compute.threads=1 \
    method.learning_rate=$rate "method.refresh={every: 12, games: 64}" method.steps=600 "evaluate.decoding=[greedy,sample]" -- evaluate@1
done
# A model of few dialogues: LoRA, all weights, and a policy gradient with a KL and credit by turn (read `refreshed`).
[ -d models/sums-2000 ] || python -m tasks.commands.make_chat_model --out models/sums-2000 --size medium --worlds arithmetic --dialogues 2000 --steps 1200 --threads 1
dialogues="$sizes model.source=./models/sums-2000 compute.threads=1 games.train=16400 games.seen=400 sft.batch_tokens=8192 rollout.branch.train_states=0
  rollout.branch.validation_states=0 evaluate.decoding=[greedy,sample]"
sh experiments/run chat-few chat $wins $dialogues rollout.games=8000 method.steps=240 iterations.3.prev=2 policies.3.prm=3 -- evaluate@0 evaluate@1 evaluate@2 evaluate@3
sh experiments/run chat-few-whole chat $wins $dialogues model.lora=null sft.learning_rate=3.0e-4 rollout.games=8000 method.steps=240 method.learning_rate=3.0e-4 \
  -- evaluate@0 evaluate@1
sh experiments/run chat-few-gigpo chat gigpo $dialogues rollout.games=64 rollout.episodes_per_game=8 method.batch_tokens=8192 method.optimizer=adamw \
  method.learning_rate=1.0e-4 "method.refresh={every: 12, games: 64}" method.steps=300 -- evaluate@1
# Models made of WebShop's dialogues. Read success and inadmissible of the printed lines.
shop="$wins env.world=webshop env.code=agentprm_core/worlds/webshop env.max_turns=6 model.context=3072 games.train=6000 games.unseen=200 compute.threads=1"
for made in "4000 1000 200" "8000 2000 400"; do
  set -- $made
  [ -d "models/shop-$1" ] || python -m tasks.commands.make_chat_model --out "models/shop-$1" --size medium --worlds webshop --dialogues "$1" --steps "$2" --threads 1
  THEN="python -m tasks.evaluate --policy data/checkpoints/policy/0 --games data/games --split seen --method greedy --free --max-action-tokens 64 --json" \
    sh experiments/run "chat-shop-$1" chat $shop model.source="./models/shop-$1" demos.games="$3" -- sft
done
