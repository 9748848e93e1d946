// built_alike.cpp - what the linker finds if the program is compiled as the library is (dunlin/config.hpp).
#include <dunlin/config.hpp>

extern "C" {
void DUNLIN_BUILT_ADDRESS() noexcept {}
void DUNLIN_BUILT_THREAD() noexcept {}
void DUNLIN_BUILT_DEBUG() noexcept {}
void DUNLIN_BUILT_STRINGS() noexcept {}
void dunlin_must_be_linked_with_this_program_and_stand_behind_the_files_that_use_it() noexcept {}
}
