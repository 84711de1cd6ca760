#include "text/pattern.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

using Op = PatternInstruction::Op;
using Greed = PatternInstruction::Greed;

constexpr size_t kMaxChoices = 1 << 20;  // open choices of one match

struct Choice {
  enum class Kind : uint8_t { branch, shorter, longer, slot };
  Kind kind;
  int32_t at;       // instruction to go on with; or the slot
  uint32_t left;    // longer: characters that may be added
  size_t position;  // branch: to go on from; shorter: end now; longer: end now; slot: old value
  size_t least;     // shorter: do not go below; longer: the repeat instruction
};

class Matcher {
 public:
  Matcher(std::string_view text, const std::vector<PatternInstruction>& program, const std::vector<CodePointSet>& sets,
          int32_t n_slots, PatternBudget& budget, const std::string& source)
      : text_(text), program_(program), sets_(sets), slots_(n_slots), budget_(budget), source_(source) {
    spend(static_cast<uint64_t>(n_slots) / 8);  // there may be a thousand for each word
  }

  // Runs from instruction `at` to its `accept`. Recursion is as deep as look-around is nested in the pattern.
  bool run(int32_t at, size_t position, size_t& end) {
    const size_t base = choices_.size();
    while (true) {
      spend(1);
      bool ok = true;
      const PatternInstruction& code = program_[at];
      switch (code.op) {
        case Op::accept:
          choices_.resize(base);
          end = position;
          return true;
        case Op::set:
          ok = step(sets_[code.set], position);
          ++at;
          break;
        case Op::repeat:
          ok = repeat(code, at, position);
          ++at;
          break;
        case Op::split:
          choose({Choice::Kind::branch, at + code.second, 0, position, 0});
          at += code.first;
          break;
        case Op::jump:
          at += code.first;
          break;
        case Op::mark:
          choose({Choice::Kind::slot, code.slot, 0, slots_[code.slot], 0});
          slots_[code.slot] = position;
          ++at;
          break;
        case Op::check:
          at += slots_[code.slot] == position ? 2 : 1;
          break;
        case Op::look:
        case Op::atomic: {
          size_t inner_end = position;
          ok = run(at + 1, position, inner_end) != code.negative;
          if (code.op == Op::atomic) position = inner_end;
          at += code.first;
          break;
        }
        default:
          ok = holds(code.op, position);
          ++at;
      }
      if (!ok && !backtrack(base, at, position)) return false;
    }
  }

 private:
  void spend(uint64_t steps) {
    if (steps > budget_.steps)
      fail(ExitCode::unreadable, "tokenizer: the pattern ", source_, " takes too many steps on a text of ", text_.size(),
           " bytes");
    budget_.steps -= steps;
  }
  void choose(const Choice& choice) {
    if (choices_.size() >= kMaxChoices)
      fail(ExitCode::unreadable, "tokenizer: the pattern ", source_, " backtracks too deeply on a text of ", text_.size(),
           " bytes");
    choices_.push_back(choice);
  }
  bool step(const CodePointSet& set, size_t& position) const {
    if (position >= text_.size()) return false;
    const Char c = char_at(text_, position);
    if (!set.has(c.value)) return false;
    position = c.next;
    return true;
  }
  bool repeat(const PatternInstruction& code, int32_t at, size_t& position) {
    const CodePointSet& set = sets_[code.set];
    uint32_t n = 0;
    while (n < code.low && step(set, position)) ++n;
    spend(n);
    if (n < code.low) return false;
    if (code.greed == Greed::lazy) {
      if (code.high > n) choose({Choice::Kind::longer, at + 1, code.high - n, position, static_cast<size_t>(at)});
      return true;
    }
    const size_t least = position;
    while (n < code.high && step(set, position)) {
      spend(1);
      ++n;
    }
    if (code.greed == Greed::greedy && position > least) choose({Choice::Kind::shorter, at + 1, 0, position, least});
    return true;
  }
  bool holds(Op op, size_t position) const {
    const auto is_word = [&](bool there, size_t at) {
      return there && (unicode_classes().of(char_at(text_, at).value) & kWord);
    };
    switch (op) {
      case Op::line_begin:
        return position == 0 || (text_[position - 1] == '\n' && position < text_.size());
      case Op::line_end:
        return position == text_.size() || text_[position] == '\n';
      case Op::text_begin:
        return position == 0;
      case Op::text_end:
        return position == text_.size();
      default:
        break;
    }
    const bool before = is_word(position > 0, position > 0 ? char_before(text_, position) : 0);
    const bool after = is_word(position < text_.size(), position);
    return (before != after) == (op == Op::word_border);
  }
  bool backtrack(size_t base, int32_t& at, size_t& position) {
    while (choices_.size() > base) {
      spend(1);
      Choice& choice = choices_.back();
      switch (choice.kind) {
        case Choice::Kind::slot:
          slots_[choice.at] = choice.position;
          choices_.pop_back();
          continue;
        case Choice::Kind::branch:
          at = choice.at;
          position = choice.position;
          choices_.pop_back();
          return true;
        case Choice::Kind::shorter:
          choice.position = char_before(text_, choice.position);
          at = choice.at;
          position = choice.position;
          if (choice.position <= choice.least) choices_.pop_back();
          return true;
        case Choice::Kind::longer:
          if (choice.left == 0 || !step(sets_[program_[choice.least].set], choice.position)) {
            choices_.pop_back();
            continue;
          }
          --choice.left;
          at = choice.at;
          position = choice.position;
          return true;
      }
    }
    return false;
  }

  std::string_view text_;
  const std::vector<PatternInstruction>& program_;
  const std::vector<CodePointSet>& sets_;
  std::vector<size_t> slots_;
  std::vector<Choice> choices_;
  PatternBudget& budget_;
  const std::string& source_;
};

}  // namespace

bool CodePointSet::has(uint32_t code_point) const {
  if (code_point < 128) return ascii[code_point];
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point, [](uint32_t c, const auto& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->second;
}

Pattern::Pattern(std::string_view pattern) : source_(pattern) {
  PatternProgram program = parse_pattern(pattern);
  program_ = std::move(program.instructions);
  sets_ = std::move(program.sets);
  n_slots_ = program.n_slots;
}

void Pattern::for_each_match(std::string_view text, PatternBudget& budget,
                             const std::function<void(size_t begin, size_t end)>& use) const {
  Matcher matcher(text, program_, sets_, n_slots_, budget, source_);
  size_t last_end = std::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    size_t begin = from, end = from;
    while (!matcher.run(0, begin, end)) {
      if (begin >= text.size()) return;
      begin = char_at(text, begin).next;
    }
    if (begin == end && end == last_end) {
      from = end < text.size() ? char_at(text, end).next : end + 1;
    } else {
      use(begin, end);
      from = last_end = end;
    }
  }
}

}  // namespace lockstep
