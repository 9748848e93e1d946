// dunlin.hpp - everything.
#pragma once

#include <dunlin/blocking.hpp>
#include <dunlin/chan.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/config.hpp>
#include <dunlin/context.hpp>
#include <dunlin/error.hpp>
#include <dunlin/go.hpp>
#include <dunlin/goroutine_local.hpp>
#include <dunlin/runtime.hpp>
#include <dunlin/select.hpp>
#include <dunlin/task.hpp>
#include <dunlin/timer.hpp>
#include <dunlin/wait_group.hpp>
