// Whole models against Transformers in f32: all log-probabilities after each prompt and after each of its prefixes, greedy
// tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "model/stage.h"
#include "ops/ops.h"
#include "sched/scheduler.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Logits agree to 1e-3 in f32 (the goldens' README: noise floor 1e-5); log-probabilities are logits up to a constant.
constexpr double kTolerance = 1e-3;

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// One rank, one stage; runs requests to their end and returns each one's samples in order.
class Runner {
 public:
  Runner(const std::string& path, int64_t max_batch_tokens)
      : checkpoint_(Checkpoint::open(path)),
        ops_(make_cpu_ops({.n_threads = 1, .n_slots = 64})),
        comm_(make_solo_comm()),
        max_len_(std::min<int64_t>(512, config().max_positions)),
        stage_(*checkpoint_,
               {.dtype = DType::f32,
                .vocab = config().vocab,
                .max_model_len = max_len_,
                .max_batch_tokens = max_batch_tokens,
                .max_sequences = 64},
               *ops_, *comm_, *comm_, reader_),
        scheduler_({.n_pages = 256, .max_batch_tokens = max_batch_tokens, .max_sequences = 64, .max_model_len = max_len_}) {
    stage_.allocate_kv(256);
  }

  const ModelConfig& config() const { return checkpoint_->config(); }

  std::vector<std::vector<SampledToken>> generate(const std::vector<std::vector<TokenId>>& prompts, int32_t n_tokens,
                                                  int32_t n_logprobs) {
    std::vector<std::vector<SampledToken>> answers(prompts.size());
    StepEvents events;
    for (const auto& prompt : prompts) {
      Request request;
      request.id = next_id_ + static_cast<int64_t>(&prompt - prompts.data());
      request.prompt = prompt;
      request.sampling.max_tokens = n_tokens;
      request.sampling.temperature = 0;
      request.sampling.n_logprobs = n_logprobs;
      events.admitted.push_back(request);
    }
    const RequestId first = std::exchange(next_id_, next_id_ + static_cast<int64_t>(prompts.size()));
    size_t n_open = prompts.size();
    while (n_open > 0) {
      if (step_ > 0) scheduler_.commit(pending_);
      const StepBatch batch = scheduler_.schedule();
      stage_.forward(batch);
      pending_ = std::exchange(events, {});
      pending_.step = batch.step;
      for (const SampledToken& token : stage_.collect(batch.step).sampled) {
        auto& answer = answers.at(token.request - first);
        answer.push_back(token);
        const bool finished = static_cast<int32_t>(answer.size()) == n_tokens;
        pending_.sampled.push_back({token.request, token.token, finished});
        n_open -= finished;
      }
      ++step_;
    }
    return answers;
  }

 private:
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Communicator> comm_;
  int64_t max_len_;
  NodeReader reader_;
  Stage stage_;
  Scheduler scheduler_;
  StepEvents pending_;
  int64_t step_ = 0;
  RequestId next_id_ = 0;
};

// log_softmax(logits)[i] for every token, from the sample's complete list.
double worst_difference(const SampledToken& sample, const std::vector<double>& logits) {
  double max = -INFINITY, sum = 0, worst = 0;
  for (const double l : logits) max = std::max(max, l);
  for (const double l : logits) sum += std::exp(l - max);
  EXPECT_EQ(sample.top.size(), logits.size());
  for (const auto& [token, logprob] : sample.top)
    worst = std::max(worst, std::abs(logprob - (logits.at(token) - max - std::log(sum))));
  return worst;
}

struct Family {
  std::string name;
  int64_t budget;
};
void PrintTo(const Family& f, std::ostream* out) { *out << f.name << ", budget " << f.budget; }

class GoldenModel : public ::testing::TestWithParam<Family> {};

TEST_P(GoldenModel, AgreesWithTransformers) {
  const fs::path directory = fs::path(LOCKSTEP_SHARED) / "goldens/tiny" / GetParam().name;
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is absent";
  const Json golden = read_json(directory / "golden.json");
  Runner runner(directory, GetParam().budget);
  const auto vocab = static_cast<int32_t>(runner.config().vocab);
  double worst_logits = 0, worst_position = 0;
  int n_positions = 0, n_tokens = 0;
  for (const Json& prompt : golden["prompts"]) {
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const auto last = runner.generate({ids}, 1, vocab);
    worst_logits = std::max(worst_logits, worst_difference(last[0][0], prompt["last_logits"].get<std::vector<double>>()));

    std::vector<std::vector<TokenId>> prefixes;
    for (size_t n = 1; n < ids.size(); ++n) prefixes.emplace_back(ids.begin(), ids.begin() + n);
    const auto answers = runner.generate(prefixes, 1, vocab);
    for (size_t i = 0; i < answers.size(); ++i) {
      const double want = prompt["logprob_next"][i].get<double>();
      for (const auto& [token, logprob] : answers[i][0].top)
        if (token == ids[i + 1]) worst_position = std::max(worst_position, std::abs(logprob - want)), ++n_positions;
    }
    if (prompt["greedy_min_margin"].get<double>() >= 1e-3) {
      const auto tokens = runner.generate({ids}, 24, -1);
      const auto want = prompt["greedy"].get<std::vector<TokenId>>();
      for (size_t i = 0; i < want.size(); ++i, ++n_tokens) EXPECT_EQ(tokens[0][i].token, want[i]) << "greedy token " << i;
    }
  }
  std::printf("%s: logits within %.1e, %d positions within %.1e, %d greedy tokens\n", GetParam().name.c_str(), worst_logits,
              n_positions, worst_position, n_tokens);
  EXPECT_LT(worst_logits, kTolerance);
  EXPECT_LT(worst_position, kTolerance);
  EXPECT_GT(n_positions, 100);
  EXPECT_GT(n_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModel,
                         ::testing::Values(Family{"llama", 256}, Family{"llama", 7}, Family{"llama-mha-f32", 256},
                                           Family{"llama-rope-llama3", 256}, Family{"mistral-swa", 256},
                                           Family{"mistral-swa", 5}, Family{"qwen2", 256}, Family{"qwen3", 256}),
                         [](const auto& param_info) {
                           std::string name = param_info.param.name + "_" + std::to_string(param_info.param.budget);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GoldenGguf, AgreesWithTheDequantisedModel) {
  const fs::path directory = fs::path(LOCKSTEP_SHARED) / "goldens/tiny_gguf";
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is absent";
  const Json golden = read_json(directory / "gguf_golden.json");
  const auto prompts = golden["ids"].get<std::vector<std::vector<TokenId>>>();
  int n_models = 0;
  for (const auto& [name, model] : golden["models"].items()) {
    const fs::path path = directory / name;
    if (!fs::exists(path)) continue;  // the goldens know of more than travel
    Runner runner(path, 64);
    const auto last = runner.generate(prompts, 1, static_cast<int32_t>(runner.config().vocab));
    double worst = 0;
    for (size_t i = 0; i < prompts.size(); ++i)
      worst = std::max(worst, worst_difference(last[i][0], model["weight_only"]["logits"][i].get<std::vector<double>>()));
    std::printf("%s: logits within %.1e\n", name.c_str(), worst);
    EXPECT_LT(worst, kTolerance) << name;
    ++n_models;
  }
  EXPECT_GE(n_models, 4);
}

}  // namespace
}  // namespace lockstep
