// dunlin.hpp - everything.
#pragma once

#include <dunlin/blocking.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/config.hpp>
#include <dunlin/go.hpp>
#include <dunlin/runtime.hpp>
#include <dunlin/task.hpp>
#include <dunlin/wait_group.hpp>
