#include "platform/text.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace {

using dunlin::platform::duration_text;

TEST(DurationText, HasTheUnitsOfGo) {
    EXPECT_EQ(duration_text(0), "0s");
    EXPECT_EQ(duration_text(7), "7ns");
    EXPECT_EQ(duration_text(-7), "-7ns");
    EXPECT_EQ(duration_text(1'000), "1us");
    EXPECT_EQ(duration_text(1'050), "1.05us");
    EXPECT_EQ(duration_text(50'000'000), "50ms");
    EXPECT_EQ(duration_text(999'999'999), "999.999999ms");
    EXPECT_EQ(duration_text(1'000'000'000), "1s");
    EXPECT_EQ(duration_text(1'500'999'999), "1.5s");
    EXPECT_EQ(duration_text(60'000'000'000), "1m0s");
    EXPECT_EQ(duration_text(-3'723'045'000'000), "-1h2m3.045s");
    EXPECT_EQ(duration_text(INT64_MIN), "-2562047h47m16.854s");
}

TEST(TextWriter, WritesControlCharactersSoThatALineStaysOne) {
    std::string text;
    dunlin::platform::text_writer(text).printable(std::string("a\n\x1b[31m\x7f \xc3\xa9\0", 12));
    EXPECT_EQ(text, "a\\x0a\\x1b[31m\\x7f \xc3\xa9\\x00");
}

}  // namespace
