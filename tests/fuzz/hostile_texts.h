// A few short texts that break tokenizers, for fuzz targets whose input is the tokenizer.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

inline std::string repeated(const std::string& part, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += part;
  return text;
}

inline const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts = {
      "",
      " ",
      "Hello world, it's 12345 o'clock",
      "  two  spaces\n\n\tand\r\nlines  ",
      "\xFF\xC3\x80 no UTF-8 \xF0\x9F\x98",
      "na\u00EFve \uFB01 \uFDFA e\u0301 \u1100\u1161\u11A8",
      "\u2581\u2581 <0x41><0xE2> <s>x</s> <|im_start|>user <unk>",
      "\U0001F468\u200D\U0001F469\u200D\U0001F467 \u4F60\u597D \uFFFD",
      repeated("a", 300),
      repeated(" ", 300),
      repeated("a\u0301\u0323\u0323", 1).append(repeated("\u0301\u0323", 100)),
      repeated("ab ", 100),
      std::string("nul \0 and \x1E", 11),
  };
  return texts;
}

}  // namespace lockstep
