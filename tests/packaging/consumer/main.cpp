// A stranger's first program.
#include <dunlin/dunlin.hpp>

int main() {
    return dunlin::run([] {
        auto answer = dunlin::spawn([] { return 42; });
        return answer.get() == 42 ? 0 : 1;
    });
}
