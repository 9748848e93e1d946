// empty.cpp - the program whose life start-up measures: a runtime that starts, has nothing to do, and ends.

#include <dunlin/dunlin.hpp>

int main() {
    return dunlin::run([] { return 0; });
}
