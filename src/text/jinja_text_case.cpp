// Upper, lower and title case of whole strings. Letters whose upper case is several letters (ß) are in a table; case that
// depends on the neighbours (final sigma) is not done.
#include "base/utf8.h"
#include "text/jinja_text_ops.h"

#include <utf8proc.h>

#include <algorithm>

namespace lockstep::jinja {

namespace {

struct Expansion {
  uint32_t letter;
  std::string_view upper;
};
// Unicode SpecialCasing, the entries without conditions that Latin, Armenian and Greek texts meet.
constexpr Expansion kExpansions[] = {{0x00DF, "SS"},
                                     {0x0149, "\u02BCN"},
                                     {0x01F0, "J\u030C"},
                                     {0x0390, "\u0399\u0308\u0301"},
                                     {0x03B0, "\u03A5\u0308\u0301"},
                                     {0x0587, "\u0535\u0552"},
                                     {0x1E96, "H\u0331"},
                                     {0x1E97, "T\u0308"},
                                     {0x1E98, "W\u030A"},
                                     {0x1E99, "Y\u030A"},
                                     {0x1E9A, "A\u02BE"},
                                     {0xFB00, "FF"},
                                     {0xFB01, "FI"},
                                     {0xFB02, "FL"},
                                     {0xFB03, "FFI"},
                                     {0xFB04, "FFL"},
                                     {0xFB05, "ST"},
                                     {0xFB06, "ST"}};

void append_upper(std::string& out, uint32_t c) {
  if (c >= 0x80) {
    const auto* special =
        std::find_if(std::begin(kExpansions), std::end(kExpansions), [&](const Expansion& e) { return e.letter == c; });
    if (special != std::end(kExpansions)) {
      out += special->upper;
      return;
    }
  }
  append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, uint32_t c) {
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == 0x0130) append_utf8(out, 0x0307);  // İ
}

bool is_cased(uint32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

// Maps code point by code point, each result under the mark of its origin.
template <class Append>
MarkedText map_text(const MarkedText& text, Budget& budget, const Append& append) {
  budget.spend_text(kCharacterCost * text.bytes.size());
  MarkedText out;
  out.html_safe = text.html_safe;
  size_t at = 0;
  std::string mapped;
  for (const MarkedText::Run& run : text.runs) {
    mapped.clear();
    while (at < run.end) {
      const CodePoint c = decode_utf8(text.bytes, at);
      append(mapped, c.value);
      at += c.length;
    }
    out.append(mapped, run.trusted);
  }
  return out;
}

}  // namespace

MarkedText upper(const MarkedText& text, Budget& budget) { return map_text(text, budget, append_upper); }
MarkedText lower(const MarkedText& text, Budget& budget) { return map_text(text, budget, append_lower); }

MarkedText swap_case(const MarkedText& text, Budget& budget) {
  return map_text(text, budget, [](std::string& out, uint32_t c) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    category == UTF8PROC_CATEGORY_LU ? append_lower(out, c) : append_upper(out, c);
  });
}

MarkedText capitalize(const MarkedText& text, Budget& budget) {
  bool first = true;
  return map_text(text, budget, [&](std::string& out, uint32_t c) {
    std::exchange(first, false) ? append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))))
                                : append_lower(out, c);
  });
}

MarkedText title(const MarkedText& text, bool as_filter, Budget& budget) {
  bool in_word = false;
  return map_text(text, budget, [&](std::string& out, uint32_t c) {
    // The filter starts words after white space and - ( { [ <, the method after anything that has no case.
    static constexpr std::string_view kStarts = "-({[<";
    const bool separates =
        as_filter ? is_python_space(c) || (c < 0x80 && kStarts.find(static_cast<char>(c)) != std::string_view::npos)
                  : !is_cased(c);
    if (separates || in_word) {
      append_lower(out, c);
    } else if (as_filter) {
      append_upper(out, c);
    } else {
      append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
    }
    in_word = !separates;
  });
}

}  // namespace lockstep::jinja
