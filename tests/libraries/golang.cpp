// golang.cpp - a library written in Go (-buildmode=c-shared), with Go's scheduler, collector and signals beside this
// one's.
#include "libgolang.h"
#include "libraries/library.h"

int main() {
    libraries::program p(GoVersion());
    libraries::in_goroutines({.goroutines = 100, .rounds = 3},
        [](int i, int) { libraries::expect(GoWork(i) == i, "GoWork gives another number"); });
    return p.result();
}
