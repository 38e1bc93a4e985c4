# Does a chat model of two million parameters that is made here learn? And what does it do when it is asked to explore, to say why,
# to keep to an instruction? Read: data/metrics/stages/rollout-1.json and prm-1.json, data/metrics/evaluate-0.json and
# evaluate-1.json, and the JSON object that benchmarks.chat_model prints.
[ -d models/chat ] || python -m tasks.commands.make_chat_model --out models/chat --size medium --worlds babyai
[ -d models/sums ] || python -m tasks.commands.make_chat_model --out models/sums --size medium --worlds arithmetic
sh experiments/run chat-rft chat rft method.steps=100 method.batch_tokens=8192 method.learning_rate=5.0e-4 \
  "evaluate.decoding=[greedy]" -- evaluate@0 evaluate@1
sh experiments/run chat-plain chat model.reason_tokens=0 rollout.branch.train_states=0 rollout.branch.validation_states=0 \
  compute.threads=1 -- rollout@1
sh experiments/run chat-sums chat model.source=./models/sums env.world=arithmetic env.code=agentprm_core/worlds/arithmetic \
  env.max_turns=10 compute.threads=1 games.train=12000 games.seen=200 games.unseen=20 demos.games=1000 rollout.games=600 \
  rollout.episodes_per_game=1 -- rollout@1
python -m benchmarks.chat_model --model models/chat --games 100 --threads 1
