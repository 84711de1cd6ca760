// From logits to tokens and log-probabilities, on each device.
#include <algorithm>

#include "tests/ops/devices.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Sampling : public OpsTest {
 protected:
  Sampling() : OpsTest(64) {}
  int64_t step = 0;

  // One row of logits for each of `rows`.
  std::vector<SampledToken> sample(Ops& with, const std::vector<std::vector<float>>& logits, std::vector<SampleRow> rows) {
    StepBatch batch = short_sequences(++step, std::vector<int32_t>(rows.size(), 1));
    std::vector<float> all;
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].row = rows[r].slot = static_cast<int32_t>(r);
      all.insert(all.end(), logits[r].begin(), logits[r].end());
    }
    batch.samples = rows;
    Matrix matrix(with, DType::f32, static_cast<int64_t>(rows.size()), static_cast<int64_t>(logits[0].size()), all);
    with.sample(matrix.view, with.upload_batch(batch));
    EXPECT_TRUE(matrix.intact());
    return with.collect(step).sampled;
  }
  std::vector<SampledToken> sample(const std::vector<std::vector<float>>& logits, const std::vector<SampleRow>& rows) {
    return sample(*ops, logits, rows);
  }
  SampledToken one(const std::vector<float>& logits, SampleRow row) { return sample({logits}, {row})[0]; }
};

TEST_P(Sampling, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  EXPECT_EQ(one({1, 5, 3, 5}, {}).token, 1);
  EXPECT_EQ(one({-0.0f, 0.0f, -1}, {}).token, 0);
  std::vector<float> wide(1000, -3.0f);
  wide[700] = wide[701] = wide[999] = 2.0f;
  EXPECT_EQ(one(wide, {}).token, 700);
  EXPECT_EQ(one({-5, -kInf, -4}, {}).token, 2);
  EXPECT_EQ(one({-3e38f, -3.4e38f}, {}).token, 0);
}

TEST_P(Sampling, NonFiniteLogitsAreReported) {
  for (const float bad : {NAN, kInf}) {
    for (const size_t n : {1, 3, 16, 17, 40}) {
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> logits(n, 1.0f);
        logits[at] = bad;
        EXPECT_FALSE(one(logits, {}).finite) << at;
        EXPECT_FALSE(one(logits, {.temperature = 1, .n_logprobs = 3}).finite) << at;
      }
    }
  }
  EXPECT_FALSE(one({-kInf, -kInf}, {.temperature = 1}).finite);
  const auto masked = one({-kInf, -kInf, -7, -kInf}, {.temperature = 1, .top_p = 0.5f, .top_k = 3, .n_logprobs = 4});
  EXPECT_TRUE(masked.finite);
  EXPECT_EQ(masked.token, 2);
  EXPECT_EQ(masked.logprob, 0);
  EXPECT_EQ(masked.top, (std::vector<std::pair<TokenId, float>>{{2, 0.0f}}));
}

TEST_P(Sampling, ExtremeParametersStillGiveTheLargest) {
  auto logits = random_values(1000, 3, DType::f32, 10.0f);
  logits[417] = 11;
  for (uint64_t key = 0; key < 20; ++key) {
    for (const SampleRow row :
         {SampleRow{.temperature = 1e-10f}, SampleRow{.temperature = 1e-45f}, SampleRow{.temperature = 1, .top_k = 1},
          SampleRow{.temperature = 2, .top_p = 1e-9f}, SampleRow{.temperature = 2, .top_p = 0},
          SampleRow{.temperature = 5, .min_p = 1}, SampleRow{.temperature = 5, .min_p = 7},
          SampleRow{.temperature = 1e-45f, .top_p = 0.9f, .top_k = 5, .min_p = 0.1f}}) {
      SampleRow r = row;
      r.draw_key = key;
      EXPECT_EQ(one(logits, r).token, 417) << row.temperature << " " << row.top_p;
    }
  }
  EXPECT_TRUE(one(logits, {.temperature = kInf}).finite);
  EXPECT_EQ(one({-kInf, 3, -kInf}, {.temperature = kInf}).token, 1);
  EXPECT_EQ(one({3e38f, -3e38f}, {.temperature = 1e-3f}).token, 0);
}

// Draws are the reference's: the same token wherever the first two don't lie closer than rounding, nor a border of the filters.
TEST_P(Sampling, DrawsAreThoseOfTheReference) {
  int n_checked = 0, n_all = 0;
  for (const int64_t vocab : {1, 5, 150, 3001}) {
    for (int round = 0; round < (vocab > 1000 ? 1 : 12); ++round) {
      std::vector<std::vector<float>> logits;
      std::vector<SampleRow> rows;
      for (int i = 0; i < 40; ++i) {
        logits.push_back(
            random_values(vocab, static_cast<uint64_t>(1000 * round + i), DType::f32, 1.0f + static_cast<float>(i % 5)));
        SampleRow row{.draw_key = 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(round * 40 + i + 1),
                      .position = 31 * i + round,
                      .temperature = 0.3f + 0.2f * static_cast<float>(i % 7)};
        if (i % 3 == 1) row.top_k = 1 + i;
        if (i % 4 == 2) row.top_p = 0.3f + 0.015f * static_cast<float>(i);
        if (i % 5 == 3) row.min_p = 0.1f;
        rows.push_back(row);
      }
      const auto tokens = sample(logits, rows);
      for (size_t i = 0; i < rows.size(); ++i, ++n_all) {
        const SampleRow& row = rows[i];
        const auto want = reference::draw(as_double(logits[i]), {row.temperature, row.top_p, row.min_p, row.top_k},
                                          row.draw_key, static_cast<uint32_t>(row.position));
        if (want.margin < 1e-4) continue;
        ++n_checked;
        ASSERT_EQ(tokens[i].token, want.token) << "row " << i << " of " << vocab << " tokens";
      }
    }
  }
  EXPECT_GT(n_checked, n_all * 98 / 100);
}

TEST_P(Sampling, ABrokenRowIsReportedAndSpoilsNoOther) {
  const int64_t vocab = 100;
  std::vector<std::vector<float>> logits(4, std::vector<float>(vocab, 1.0f));
  logits[0][50] = NAN, logits[1][3] = 2, logits[2].assign(vocab, -kInf), logits[3][99] = kInf;
  for (const float temperature : {0.0f, 1.0f}) {
    const auto got = sample(logits, std::vector<SampleRow>(4, {.temperature = temperature, .top_p = 0.02f, .n_logprobs = 2}));
    for (const size_t i : {0, 2, 3}) EXPECT_FALSE(got[i].finite) << i;
    EXPECT_TRUE(got[1].finite);
    EXPECT_EQ(got[1].token, 3);
    EXPECT_EQ(got[1].top.at(0).first, 3);
  }
  std::vector<float> all;
  for (const auto& row : logits) all.insert(all.end(), row.begin(), row.end());
  StepBatch batch = short_sequences(++step, {4});
  for (int32_t r = 0; r < 4; ++r) batch.scores.push_back({.row = r, .target = 3, .n_logprobs = 1});
  const Matrix matrix(*ops, DType::f32, 4, vocab, all);
  ops->score(matrix.view, ops->upload_batch(batch), {0, 4});
  const auto scored = ops->collect(step).scored;
  for (const size_t i : {0, 2, 3}) EXPECT_FALSE(scored.at(i).finite) << i;
  EXPECT_TRUE(scored.at(1).finite);
  EXPECT_NEAR(scored.at(1).logprob, reference::log_softmax(as_double(logits[1]))[3], 2e-6);
}

// Which tokens can be drawn, and how often: chi-square over many keys against the exact probabilities; for these seeds.
TEST_P(Sampling, DrawsFollowTheProbabilities) {
  const int64_t vocab = 37;
  const auto logits = random_values(vocab, 8, DType::f32, 3.0f);
  const int n_draws = like_gpu() || GetParam().instruction_set == "generic" ? 4096 : 16384;
  for (const SampleRow rule : {SampleRow{.temperature = 1}, SampleRow{.temperature = 0.7f, .top_k = 9},
                               SampleRow{.temperature = 1.3f, .top_p = 0.8f}, SampleRow{.temperature = 1, .min_p = 0.2f},
                               SampleRow{.temperature = 1.5f, .top_p = 0.9f, .top_k = 20, .min_p = 0.05f}}) {
    const auto p = reference::sampling_probabilities(as_double(logits), {rule.temperature, rule.top_p, rule.min_p, rule.top_k});
    std::vector<int> count(vocab, 0);
    for (int i = 0; i < n_draws; i += 64) {
      std::vector<SampleRow> rows(64, rule);
      for (int j = 0; j < 64; ++j) {  // keys and positions both vary
        rows[j].draw_key = 0x1234567800000000u + static_cast<uint64_t>(i / 64);
        rows[j].position = j;
      }
      for (const auto& t : sample(std::vector<std::vector<float>>(64, logits), rows)) ++count[t.token];
    }
    double chi2 = 0, freedom = -1;
    for (int64_t i = 0; i < vocab; ++i) {
      if (p[i] == 0) {
        EXPECT_EQ(count[i], 0) << i;
        continue;
      }
      const double expected = p[i] * n_draws;
      chi2 += (count[i] - expected) * (count[i] - expected) / expected;
      freedom += 1;
    }
    EXPECT_LT(chi2, freedom + 4 * std::sqrt(2 * freedom) + 4) << "of " << freedom << " degrees of freedom";
  }
}

// The kept set, found out by drawing: with temperature 1 and equal-ish logits every kept token comes up sooner or later.
TEST_P(Sampling, FiltersKeepWhatTheReferenceKeeps) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const int64_t vocab = 21;
    auto logits = random_values(vocab, seed, DType::f32, 1.0f);
    for (int64_t i = 0; i < vocab; i += 3) logits[i] = logits[(i * 7 + 1) % vocab];  // ties
    SampleRow rule{.temperature = 1.0f};
    const auto words = philox4x32(seed, {1, 2, 3, 4});
    if (words[0] % 2) rule.top_k = static_cast<int32_t>(1 + words[1] % 23);
    if (words[0] / 2 % 2) rule.top_p = 0.1f + 0.85f * uniform_open(words[2]);
    if (words[0] / 4 % 2) rule.min_p = 0.9f * uniform_open(words[3]);
    const auto p = reference::sampling_probabilities(as_double(logits), {1.0, rule.top_p, rule.min_p, rule.top_k});
    std::vector<bool> seen(vocab, false);
    for (int i = 0; i < 32; ++i) {
      std::vector<SampleRow> rows(64, rule);
      for (int j = 0; j < 64; ++j) rows[j].draw_key = static_cast<uint64_t>(i * 64 + j);
      for (const auto& t : sample(std::vector<std::vector<float>>(64, logits), rows)) seen[t.token] = true;
    }
    for (int64_t i = 0; i < vocab; ++i) EXPECT_EQ(seen[i], p[i] > 0) << "seed " << seed << " token " << i;
  }
}

// Ties at the border of top_k and top_p go to lower ids.
TEST_P(Sampling, TiesAtTheBorder) {
  std::vector<bool> by_k(8, false), by_p(8, false);
  for (uint64_t key = 0; key < 300; ++key) {
    by_k[one(std::vector<float>(8, 2.5f), {.draw_key = key, .temperature = 1, .top_k = 3}).token] = true;
    by_p[one(std::vector<float>(8, 2.5f), {.draw_key = key, .temperature = 1, .top_p = 0.5f}).token] = true;
  }
  EXPECT_EQ(by_k, (std::vector<bool>{true, true, true, false, false, false, false, false}));
  EXPECT_EQ(by_p, (std::vector<bool>{true, true, true, true, false, false, false, false}));
}

// A large vocabulary through each path, against the same rule: what is drawn must be kept by the reference.
TEST_P(Sampling, LargeVocabularies) {
  const int64_t vocab = 5003;
  for (const float spread : {0.5f, 12.0f}) {
    const auto logits = random_values(vocab, 17, DType::f32, spread);
    for (const SampleRow rule :
         {SampleRow{.temperature = 1, .top_k = 50}, SampleRow{.temperature = 1, .top_p = 0.95f},
          SampleRow{.temperature = 1, .top_k = 4000}, SampleRow{.temperature = 0.3f, .top_p = 0.5f, .top_k = 700},
          SampleRow{.temperature = 1, .top_k = 100000}, SampleRow{.temperature = 1, .min_p = 0.5f}}) {
      const auto p =
          reference::sampling_probabilities(as_double(logits), {rule.temperature, rule.top_p, rule.min_p, rule.top_k});
      for (int i = 0; i < 4; ++i) {
        std::vector<SampleRow> rows(16, rule);
        for (int j = 0; j < 16; ++j) rows[j].draw_key = static_cast<uint64_t>(i * 16 + j);
        for (const auto& t : sample(std::vector<std::vector<float>>(16, logits), rows)) ASSERT_GT(p[t.token], 0) << t.token;
      }
    }
  }
}

TEST_P(Sampling, LogprobsAreThoseOfTheRawLogits) {
  const auto logits = random_values(3001, 4, DType::f32, 6.0f);
  const auto want = reference::log_softmax(as_double(logits));
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  for (const int32_t n : {0, 1, 5, 20, 64, 65, 128, 3001, 5000}) {
    for (const SampleRow rule : {SampleRow{.n_logprobs = n}, SampleRow{.temperature = 2, .top_k = 7, .n_logprobs = n}}) {
      const auto t = one(logits, rule);
      EXPECT_NEAR(t.logprob, want[t.token], 2e-6);
      ASSERT_EQ(static_cast<int32_t>(t.top.size()), std::min({n, 3001, on_gpu() ? 128 : 3001}));  // a GPU's limit
      for (size_t i = 0; i < t.top.size(); ++i) {
        ASSERT_EQ(t.top[i].first, order[i]) << n << " " << i;
        ASSERT_NEAR(t.top[i].second, want[order[i]], 2e-6);
      }
    }
  }
  EXPECT_TRUE(one(logits, {.n_logprobs = -1}).top.empty());
  const auto ties = one({1, 2, 2, 2, 1}, {.n_logprobs = 4}).top;
  EXPECT_EQ(ties[0].first, 1);
  EXPECT_EQ(ties[1].first, 2);
  EXPECT_EQ(ties[2].first, 3);
  EXPECT_EQ(ties[3].first, 0);
}

// A draw depends on its row alone: not on the rows beside it, threads or instruction set.
TEST_P(Sampling, BitsDoNotDependOnTheCompany) {
  const int64_t vocab = 1237;
  std::vector<std::vector<float>> logits;
  std::vector<SampleRow> rows;
  for (int i = 0; i < 24; ++i) {
    logits.push_back(random_values(vocab, static_cast<uint64_t>(100 + i), DType::f32, 4.0f));
    SampleRow row{.request = 70 + i,
                  .draw_key = philox4x32(9, {static_cast<uint32_t>(i), 0, 0, 0})[0] * 0x100000001ull,
                  .position = i,
                  .temperature = 0.2f * static_cast<float>(i % 8),
                  .n_logprobs = i % 7 - 1};
    if (i % 3 == 1) row.top_k = 40;
    if (i % 4 == 1) row.top_p = 0.9f;
    if (i % 5 == 1) row.min_p = 0.02f;
    rows.push_back(row);
  }
  const auto together = sample(logits, rows);
  const auto equal = [](const SampledToken& a, const SampledToken& b) {
    return a.request == b.request && a.token == b.token && a.finite == b.finite && a.logprob == b.logprob && a.top == b.top;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(together[i].request, rows[i].request);
    EXPECT_TRUE(equal(together[i], one(logits[i], rows[i]))) << i;
  }
  with_others([&](Ops& other, const std::string& which) {
    step = 0;
    const auto tokens = sample(other, logits, rows);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(equal(together[i], tokens[i])) << which << " " << i;
  });
}

TEST_P(Sampling, StepsAreCollectedOnceInOrder) {
  const auto give = [&](int64_t at, float second) {
    StepBatch batch = short_sequences(at, {1});
    batch.samples = {{.request = at}};
    const Matrix logits(*ops, DType::f32, 1, 2, {0, second});
    ops->sample(logits.view, ops->upload_batch(batch));
  };
  give(1, -1), give(2, 1), give(4, 1);  // step 3 has no samples
  EXPECT_EQ(ops->collect(1).sampled.at(0).token, 0);
  EXPECT_THROW(ops->collect(1), Error);
  EXPECT_THROW(give(1, 1), Error);
  EXPECT_THROW(give(3, 1), Error);  // after 4
  if (!like_gpu()) {
    EXPECT_THROW(give(4, 1), Error);  // again; a GPU adds it to the step
  }
  EXPECT_EQ(ops->collect(2).sampled.at(0).token, 1);
  EXPECT_TRUE(ops->collect(3).sampled.empty());
  EXPECT_EQ(ops->collect(4).sampled.at(0).request, 4);
  give(5, 1), give(6, 1);
  EXPECT_THROW(ops->collect(6), Error);  // 5 is waiting
}

// More and more rows a step, none collected until all are given: nothing that is under way may be written over.
TEST_P(Sampling, ManyStepsMayBeUnderWay) {
  const int64_t vocab = 50;
  std::vector<Matrix> logits;
  std::vector<StepBatch> batches;
  for (int32_t at = 1; at <= 12; ++at) {
    const int32_t n_rows = 5 * at;
    StepBatch batch = short_sequences(at, std::vector<int32_t>(static_cast<size_t>(n_rows), 1));
    std::vector<float> values(static_cast<size_t>(n_rows * vocab), 0.0f);
    for (int32_t r = 0; r < n_rows; ++r) {
      batch.samples.push_back({.row = r, .slot = r, .request = 100 * at + r, .position = at, .n_logprobs = at % 3});
      values[r * vocab + (at * 7 + r) % vocab] = 3;
    }
    logits.emplace_back(*ops, DType::f32, n_rows, vocab, values);
    batches.push_back(std::move(batch));
  }
  for (size_t i = 0; i < batches.size(); ++i) ops->sample(logits[i].view, ops->upload_batch(batches[i]));
  for (int32_t at = 1; at <= 12; ++at) {
    const auto got = ops->collect(at).sampled;
    ASSERT_EQ(static_cast<int32_t>(got.size()), 5 * at);
    for (int32_t r = 0; r < 5 * at; ++r) {
      EXPECT_EQ(got[r].request, 100 * at + r);
      EXPECT_EQ(got[r].position, at);
      EXPECT_EQ(got[r].token, (at * 7 + r) % vocab);
      EXPECT_EQ(static_cast<int32_t>(got[r].top.size()), at % 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Sampling, sampling_cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Apart, Sampling, apart_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Sampling, cuda_cases(), case_name);

}  // namespace
}  // namespace lockstep
