// The work of one step, ragged: prefill, chunked prefill and decode are the same thing with other lengths.
// Made by sched/, the same on all ranks of a replica; read by model/ and ops/. Every array says its shape.
//
// Example: three sequences with 9, 1 and 1 new tokens, of which the first has 9 more prompt tokens to come:
//   q_offsets 0 9 10 11 · kv_lengths 9 40 7 · samples for the second and third only
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace lockstep {

inline constexpr int kPageSize = 16;  // tokens of one sequence that share a KV page; the KV tile of attention

// How one row of logits becomes a token; the values of its request, copied so that the batch stands alone.
struct SampleRow {
  int32_t row = 0;   // of the step's n_tokens: the last new token of its sequence
  int32_t slot = 0;  // of the sample buffer, where the token is put
  RequestId request = 0;
  uint64_t draw_key = 0;
  int32_t position = 0;   // index of the token to sample within its completion, 0-based
  float temperature = 0;  // 0: greedy
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
  int32_t n_logprobs = -1;
  bool adjusted = false;  // by the LogitAdjustments that its slot was given
};

// One row whose token is known: a prompt token to score (echo with logprobs).
struct ScoreRow {
  int32_t row = 0;  // of the step's n_tokens
  RequestId request = 0;
  int32_t position = 0;  // of `target` in the prompt
  TokenId target = 0;    // the prompt token that follows the row's
  int32_t n_logprobs = 0;
};

// What changes a sequence's logits before its tokens are drawn, where anything does. Given once, when the sequence first
// samples in a slot; the device then counts the tokens it samples there.
struct LogitAdjustments {
  int32_t slot = 0;
  float presence_penalty = 0, frequency_penalty = 0;  // over the completion
  float repetition_penalty = 1;                       // over prompt and completion
  int32_t min_tokens = 0;                             // before that many, `end_tokens` can't be drawn
  std::vector<TokenId> end_tokens;
  std::vector<std::pair<TokenId, float>> bias;
  std::vector<TokenId> prompt, completion;  // so far; only where a penalty needs them
};

// A sequence that begins on pages which hold its first tokens already.
struct CachedPrefix {
  RequestId request = 0;
  int32_t n_tokens = 0;
};

// One KV page of the device and its place in host memory, where preempted sequences keep theirs.
struct PageCopy {
  PageId page = 0;
  PageId host_page = 0;
};

struct StepBatch {
  int64_t step = 0;
  std::vector<TokenId> token_ids;   // [n_tokens]      new tokens of all sequences, concatenated; `sampled_in(slot)`: see below
  std::vector<int32_t> positions;   // [n_tokens]      place of each in its sequence, from 0
  std::vector<int32_t> q_offsets;   // [n_seqs + 1]    where each sequence's new tokens begin
  std::vector<int32_t> kv_lengths;  // [n_seqs]        tokens visible to attention, new ones included
  std::vector<int32_t> page_offsets;          // [n_seqs + 1]    where each sequence's pages begin in `pages`
  std::vector<PageId> pages;                  // [sum of ceil(kv_length / kPageSize)]  page of tokens 16 i .. 16 i + 15
  std::vector<SampleRow> samples;             // [n_samples]     in order of rows
  std::vector<ScoreRow> scores;               // [n_scores]      in order of rows
  std::vector<CachedPrefix> cached;           // of the sequences admitted in this step that have one
  std::vector<LogitAdjustments> adjustments;  // of the slots that sample for the first time in this step and need any
  // Copied before anything else of the step, all of `saved` before all of `restored`; also where the step has no tokens.
  std::vector<PageCopy> saved;     // to the host: of the sequences preempted in this step
  std::vector<PageCopy> restored;  // from the host: of those that come back

  int64_t n_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t n_seqs() const { return static_cast<int64_t>(kv_lengths.size()); }
};

// A token the scheduler hasn't seen yet (lag > 0): the device takes it from the sample buffer.
constexpr TokenId sampled_in(int32_t slot) { return ~slot; }
constexpr bool is_reference(TokenId token) { return token < 0; }
constexpr int32_t slot_of(TokenId reference) { return ~reference; }

}  // namespace lockstep
