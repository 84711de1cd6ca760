#include "telemetry/run_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "telemetry/progress.h"

namespace lockstep {
namespace {

RunRecord example() {
  RunRecord r;
  r.program = "lockstep";
  r.n_lines = 10;
  r.n_done = 8;
  r.n_failed = 1;
  r.n_done_before = 2;
  r.n_prompt_tokens = 300;
  r.n_generated_tokens = 100;
  r.run_s = 4;
  r.layout = "tp 2 x pp 1 x dp 1";
  r.phases = {{"open", 0.5}, {"run", 4}};
  r.model_files = {{"model.gguf", "abc"}};
  return r;
}

TEST(RunRecord, JsonHoldsRatesAndPhases) {
  const auto j = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(j["tokens_per_s"]["total"], 100.0);
  EXPECT_EQ(j["tokens_per_s"]["generated"], 25.0);
  EXPECT_EQ(j["phases_s"]["open"], 0.5);
  EXPECT_EQ(j["model"]["files"]["model.gguf"], "abc");
}

TEST(RunRecord, EnergyIsThereOnlyWhereItWasMeasured) {
  RunRecord r = example();
  auto j = nlohmann::json::parse(to_json(r));
  for (const char* name : {"energy_j", "energy_gpus", "energy_source", "joules_per_token"})
    EXPECT_FALSE(j.contains(name)) << name;
  EXPECT_EQ(to_table(r, "out").find("energy"), std::string::npos);

  r.energy = {.n_gpus = 2, .from_counter = true, .phases = {{"load", 50}, {"run", 800}}};
  j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j["energy_j"]["load"], 50.0);
  EXPECT_EQ(j["energy_j"]["run"], 800.0);
  EXPECT_EQ(j["energy_gpus"], 2);
  EXPECT_EQ(j["energy_source"], "counter");
  EXPECT_EQ(j["joules_per_token"]["total"], 2.0);  // 300 + 100 tokens
  EXPECT_EQ(j["joules_per_token"]["generated"], 8.0);
  EXPECT_NE(to_table(r, "out").find("800 J, 8 J a token out (2 GPU(s))"), std::string::npos) << to_table(r, "out");

  r.energy.phases.pop_back(), r.energy.from_counter = false;
  j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j["energy_j"].size(), 1u);
  EXPECT_EQ(j["energy_source"], "power");
  EXPECT_FALSE(j.contains("joules_per_token"));
  r.energy.phases = {{"run", 800}}, r.n_prompt_tokens = r.n_generated_tokens = 0;
  EXPECT_FALSE(nlohmann::json::parse(to_json(r)).contains("joules_per_token"));
}

TEST(RunRecord, TableNamesTheFiles) {
  const std::string table = to_table(example(), "out");
  EXPECT_NE(table.find("8 done, 1 of them failed, 2 done before (10 lines)"), std::string::npos) << table;
  EXPECT_NE(table.find("out/errors.jsonl"), std::string::npos);
  EXPECT_NE(table.find("100.0 total, 25.0 out"), std::string::npos) << table;
}

TEST(Progress, LineShowsWhatIsLeft) {
  EXPECT_EQ(progress_line(100, 20, 40, 5000, 10.0), "60/100 lines  60%  500 tok/s  ETA 0:10");
  EXPECT_EQ(progress_line(100, 0, 0, 0, 0.0), "0/100 lines  0%  0 tok/s  ETA ?");
  EXPECT_EQ(progress_line(8000, 0, 1, 10, 1.0), "1/8000 lines  0%  10 tok/s  ETA 2:13:19");
}

}  // namespace
}  // namespace lockstep
