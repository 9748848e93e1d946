// expect_child.h - what a program of tests/crash has to say on stderr.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "support/child.h"

namespace support {

inline void expect_in(const std::string& text, const child_result& r) {
    EXPECT_NE(r.err.find(text), std::string::npos) << text << '\n' << r;
}

}  // namespace support
