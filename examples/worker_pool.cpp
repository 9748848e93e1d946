// worker_pool.cpp - a fixed number of workers take jobs from one channel and send results on another.
#include <cstdio>
#include <string>

#include <dunlin/dunlin.hpp>

struct job {
    int number;
    std::string text;
};

struct result {
    int number;
    std::size_t length;
};

int main() {
    return dunlin::run([] {
        constexpr int jobs_count = 500, workers = 8;
        dunlin::chan<job> jobs;
        dunlin::chan<result> results(workers);

        dunlin::wait_group pool;
        for (int w = 0; w < workers; ++w) {
            pool.go([=] {
                for (job j : jobs) results.send({j.number, j.text.size()});
            });
        }
        dunlin::go([=] {
            for (int i = 0; i < jobs_count; ++i) jobs.send({i, std::string(static_cast<std::size_t>(i % 7), 'x')});
            jobs.close();  // the workers' loops end when the channel is drained
        });
        dunlin::go([=] {
            pool.wait();
            results.close();
        });

        int done = 0;
        std::size_t total = 0;
        for (const result& r : results) {
            ++done;
            total += r.length;
        }
        std::printf("%d jobs done by %d workers, %zu characters\n", done, workers, total);
        return done == jobs_count ? 0 : 1;
    });
}
