// Whole models against Transformers in f32: log-probabilities after each prompt and after each of its prefixes, greedy tokens.
// In f32 and bf16 on the CPU, and, in the program that is compiled with LOCKSTEP_TEST_CUDA, in bf16 on a GPU, skipped visibly
// without one.
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
#ifdef LOCKSTEP_TEST_CUDA
#include "ops/cuda/cuda_device.h"
#endif

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Logits agree to 1e-3 in f32 (the goldens' README: noise floor 1e-5); log-probabilities are logits up to a constant. In bf16,
// where each result of a layer is rounded by up to 2^-9 of itself and attention's weights with their scores, the worst of 2000
// logits is off by 0.1 to 0.21 on the CPU; logits of another position, or without a rotation, norm or bias, are off by their
// own size, 2 (rms) to 11.
constexpr double kTolerance = 1e-3, kBf16Tolerance = 0.4;

#ifdef LOCKSTEP_TEST_CUDA
constexpr bool kOnGpu = true;
std::unique_ptr<Ops> make_ops() { return make_cuda_ops({.device = 0, .n_slots = 64}); }
#else
constexpr bool kOnGpu = false;
std::unique_ptr<Ops> make_ops() { return make_cpu_ops({.n_threads = 1, .n_slots = 64}); }
int n_gpus() { return 0; }
#endif

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// One rank, one stage; runs requests to their end and returns each one's samples in order.
class Runner {
 public:
  Runner(const std::string& path, int64_t max_batch_tokens, DType dtype)
      : checkpoint_(Checkpoint::open(path)),
        ops_(make_ops()),
        comm_(make_solo_comm()),
        max_len_(std::min<int64_t>(512, config().max_positions)),
        stage_(*checkpoint_,
               {.dtype = dtype,
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

// log_softmax(logits)[i] for every token of the sample's list, which is complete on the CPU.
double worst_difference(const SampledToken& sample, const std::vector<double>& logits) {
  double max = -INFINITY, sum = 0, worst = 0;
  for (const double l : logits) max = std::max(max, l);
  for (const double l : logits) sum += std::exp(l - max);
  if (kOnGpu)
    EXPECT_GE(sample.top.size(), 5u);
  else
    EXPECT_EQ(sample.top.size(), logits.size());
  for (const auto& [token, logprob] : sample.top)
    worst = std::max(worst, std::abs(logprob - (logits.at(token) - max - std::log(sum))));
  return worst;
}

struct Family {
  std::string name;
  int64_t budget;
  DType dtype = DType::f32;
};
void PrintTo(const Family& f, std::ostream* out) { *out << f.name << ", budget " << f.budget << ", " << name_of(f.dtype); }

class GoldenModel : public ::testing::TestWithParam<Family> {};

TEST_P(GoldenModel, AgreesWithTransformers) {
  const fs::path directory = fs::path(LOCKSTEP_SHARED) / "goldens/tiny" / GetParam().name;
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is absent";
  if (kOnGpu && n_gpus() == 0) GTEST_SKIP() << "no GPU";
  const Json golden = read_json(directory / "golden.json");
  const bool is_f32 = GetParam().dtype == DType::f32;
  const double tolerance = is_f32 ? kTolerance : kBf16Tolerance;
  Runner runner(directory, GetParam().budget, GetParam().dtype);
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
    if (prompt["greedy_min_margin"].get<double>() >= tolerance) {
      const auto tokens = runner.generate({ids}, 24, -1);
      const auto want = prompt["greedy"].get<std::vector<TokenId>>();
      for (size_t i = 0; i < want.size(); ++i, ++n_tokens) EXPECT_EQ(tokens[0][i].token, want[i]) << "greedy token " << i;
    }
  }
  std::printf("%s: logits within %.1e, %d positions within %.1e, %d greedy tokens\n", GetParam().name.c_str(), worst_logits,
              n_positions, worst_position, n_tokens);
  EXPECT_LT(worst_logits, tolerance);
  EXPECT_LT(worst_position, tolerance);
  EXPECT_GT(n_positions, kOnGpu ? 10 : 100);  // a GPU's lists are short
  if (is_f32) {
    EXPECT_GT(n_tokens, 0);
  }
}

std::vector<Family> families() {
  std::vector<Family> all;
  if (!kOnGpu)
    all = {{"llama", 256},       {"llama", 7},   {"llama-mha-f32", 256}, {"mistral-swa", 5}, {"llama-rope-llama3", 256},
           {"mistral-swa", 256}, {"qwen2", 256}, {"qwen3", 256}};
  for (const char* name : {"llama", "llama-mha-f32", "llama-rope-llama3", "mistral-swa", "qwen2", "qwen3"})
    all.push_back({name, 64, DType::bf16});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModel, ::testing::ValuesIn(families()), [](const auto& param_info) {
  const Family& family = param_info.param;
  std::string name = family.name + "_" + std::to_string(family.budget) + (family.dtype == DType::bf16 ? "_bf16" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

#ifndef LOCKSTEP_TEST_CUDA
TEST(GoldenGguf, AgreesWithTheDequantisedModel) {
  const fs::path directory = fs::path(LOCKSTEP_SHARED) / "goldens/tiny_gguf";
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is absent";
  const Json golden = read_json(directory / "gguf_golden.json");
  const auto prompts = golden["ids"].get<std::vector<std::vector<TokenId>>>();
  int n_models = 0;
  for (const auto& [name, model] : golden["models"].items()) {
    const fs::path path = directory / name;
    if (!fs::exists(path)) continue;  // the goldens know of more than travel
    Runner runner(path, 64, DType::f32);
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
#endif

}  // namespace
}  // namespace lockstep
