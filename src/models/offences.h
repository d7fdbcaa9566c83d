// What is wrong with an adapter, told at once.
#pragma once
#include <string>

#include "base/error.h"

namespace tandem {

class Offences {
 public:
  void add(const std::string& text) {
    if (++count_ <= kShown) text_ += "\n  " + text;
  }
  bool none() const { return count_ == 0; }
  // "\n  first\n  second", of very many the first.
  std::string text() const {
    return count_ > kShown ? text_ + fmt::format("\n  and {} more", count_ - kShown) : text_;
  }

 private:
  static constexpr int kShown = 64;
  int count_ = 0;
  std::string text_;
};

}  // namespace tandem
