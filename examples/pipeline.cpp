// pipeline.cpp - stages joined by channels. A full channel stops the stage before it: the slowest one sets the pace,
// and nothing piles up.
#include <algorithm>
#include <cstdio>

#include <dunlin/dunlin.hpp>

using namespace std::chrono_literals;

namespace {

// Each stage owns the channel that it sends on, and closes it when there is nothing more to come.
dunlin::receiver<int> numbers(int count, std::size_t& most_in_flight, dunlin::chan<int>& out) {
    dunlin::go([=, &most_in_flight] {
        for (int i = 1; i <= count; ++i) {
            out.send(i);  // waits while the buffer is full
            most_in_flight = std::max(most_in_flight, out.len());
        }
        out.close();
    });
    return out;
}

dunlin::receiver<long> squares(dunlin::receiver<int> in) {
    dunlin::chan<long> out(4);
    dunlin::go([=] {
        for (int v : in) out.send(static_cast<long>(v) * v);
        out.close();
    });
    return out;
}

}  // namespace

int main() {
    return dunlin::run([] {
        constexpr int count = 1'000;
        std::size_t most_in_flight = 0;
        dunlin::chan<int> buffer(4);
        long sum = 0;
        for (long v : squares(numbers(count, most_in_flight, buffer))) {
            if (v % 100 == 0) dunlin::sleep_for(10us);  // a consumer that takes its time
            sum += v;
        }
        const long expected = static_cast<long>(count) * (count + 1) * (2 * count + 1) / 6;
        std::printf("sum of squares: %ld, never more than %zu waiting in front of a stage\n", sum, most_in_flight);
        return sum == expected && most_in_flight <= 4 ? 0 : 1;
    });
}
