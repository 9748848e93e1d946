// stop_node.hpp - the part of contexts for waits that end with a std::stop_token. src/context/context.cpp
#pragma once

#include <dunlin/config.hpp>

#include <stop_token>

#include <dunlin/detail/chan_core.hpp>

namespace dunlin::inline v0_1::detail {

// A context's node, which is done when `parent` is (null: the background) or when stop is requested. The caller owns
// the reference.
DUNLIN_API chan_handle make_stop_token_node(const chan_handle& parent, std::stop_token token);
// The node's channel, which closes when the node is done.
DUNLIN_API chan_core* done_of_node(chan_core* node) noexcept;

}  // namespace dunlin::detail
