// threads_empty.cpp - the program whose life start-up measures: one thread that has nothing to do.

#include <thread>

int main() {
    std::thread([] {}).join();
}
