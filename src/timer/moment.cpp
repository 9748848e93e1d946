// moment.cpp - the part of dunlin/clock.hpp that is compiled once.
#include <dunlin/clock.hpp>

#include <stdexcept>

namespace dunlin::inline v0_1::detail {

void throw_not_a_number() { throw std::invalid_argument("dunlin: a duration or time point that is not a number"); }

foreign_moment::~foreign_moment() = default;

}  // namespace dunlin::detail
