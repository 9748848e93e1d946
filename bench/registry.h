// registry.h - how a workload gets into dunlin_bench (or a program of peers/cpp), and how it says what it has measured.
//
// A workload is one function; a file holds those of one subject and ends with their `registered` objects. A program run
// measures one workload and prints each of its metrics as one line of JSON, which bench/run.py collects:
//
//   {"workload":"yield","metric":"time","peer":"dunlin","procs":1,"value":14.2,"unit":"ns"}
//
// The twin in bench/peers/go does the same work under the same name, prints the same metrics in the same units.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct settings {
    bool quick = false;
    double seconds = 0;  // how long at least is measured, where a workload can go on; 0: its own choice
    long n = 0;  // how many of what grows; 0 where nothing does

    /// `full`, or a tenth of it in a quick run (whose figures are for trying things out, not for quoting).
    long scaled(long full) const { return quick ? full / 10 : full; }

    /// The size of a workload that has no size of its own (grow-...).
    long size() const;
};

class results {
public:
    explicit results(std::string_view workload) : workload_(workload) {}

    /// Prints one metric. Names and units are those of bench/driver/workloads.py.
    void add(std::string_view metric, double value, std::string_view unit);

private:
    std::string_view workload_;
};

struct workload {
    std::string_view name;
    std::string_view what;
    void (*run)(const settings&, results&);
    bool one_processor_only = false;  // listed as "NAME P=1"
};

/// Every workload of the program, filled before main().
std::vector<workload>& workloads();

struct registered {
    explicit registered(workload w) { workloads().push_back(w); }
};

/// Whose program it is: what main.cpp, which dunlin's and those of peers/cpp share, has to know of the runtime. Each
/// program defines its own.
struct program {
    const char* peer;
    std::string (*version)();
    void (*use_procs)(int);  // called before the workload, when --procs is given
    int (*procs)();          // how many the workload runs with
    // Before the workload, when --watched is given: has what looks at programs on while it runs. None: there is
    // nothing.
    void (*watch)(const std::string& how) = nullptr;
};
extern const program this_program;

/// Fails unless they are equal.
void expect(const char* what, long got, long expected);

/// Ends the program with a message: a workload whose answer is wrong has measured nothing.
[[noreturn]] void fail(std::string_view text);

inline long settings::size() const {
    if (n < 1) fail("this workload needs --n");
    return n;
}

}  // namespace bench
