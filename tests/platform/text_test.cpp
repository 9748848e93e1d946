#include "platform/text.h"

#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>

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

// A pipe that is full.
struct full_pipe {
    int end[2] = {-1, -1};
    std::size_t size = 0;  // bytes in it

    full_pipe() {
        EXPECT_EQ(pipe2(end, O_CLOEXEC | O_NONBLOCK), 0);
        const std::string some(512, 'x');
        for (ssize_t n; (n = write(end[1], some.data(), some.size())) > 0;) size += static_cast<std::size_t>(n);
    }
    ~full_pipe() { close(end[0]), close(end[1]); }
};

// A writer that waited for the reader would wait for ever.
TEST(TextWriter, DropsWhatAFullPipeDoesNotTakeInTime) {
    full_pipe p;
    fcntl(p.end[1], F_SETFL, 0);  // it would block
    dunlin::platform::text_writer(p.end[1], 20) << "for no reader";
    std::string all(p.size + 100, '\0');
    EXPECT_EQ(read(p.end[0], all.data(), all.size()), static_cast<ssize_t>(p.size));
}

TEST(TextWriter, WaitsForRoomInADescriptorThatDoesNotBlock) {
    full_pipe p;
    std::thread reader([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::string all(p.size, '\0');
        EXPECT_EQ(read(p.end[0], all.data(), all.size()), static_cast<ssize_t>(p.size));
    });
    dunlin::platform::text_writer(p.end[1]) << "late";
    reader.join();
    char late[10];
    EXPECT_EQ(std::string(late, static_cast<std::size_t>(read(p.end[0], late, sizeof late))), "late");
}

}  // namespace
