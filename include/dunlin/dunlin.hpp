// dunlin.hpp - everything.
#pragma once

#include <dunlin/config.hpp>

// Not through other headers: with each message a compiler lists the headers that led to it.
#include <dunlin/go.hpp>
#include <dunlin/chan.hpp>
#include <dunlin/wait_group.hpp>
#include <dunlin/task.hpp>
#include <dunlin/select.hpp>

#include <dunlin/async.hpp>
#include <dunlin/barrier.hpp>
#include <dunlin/blocking.hpp>
#include <dunlin/broadcast.hpp>
#include <dunlin/clock.hpp>
#include <dunlin/condition_variable.hpp>
#include <dunlin/context.hpp>
#include <dunlin/error.hpp>
#include <dunlin/fs.hpp>
#include <dunlin/future.hpp>
#include <dunlin/goroutine_local.hpp>
#include <dunlin/io.hpp>
#include <dunlin/jthread.hpp>
#include <dunlin/latch.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/net.hpp>
#include <dunlin/notify.hpp>
#include <dunlin/once.hpp>
#include <dunlin/packaged_task.hpp>
#include <dunlin/pool.hpp>
#include <dunlin/process.hpp>
#include <dunlin/runtime.hpp>
#include <dunlin/semaphore.hpp>
#include <dunlin/shared_mutex.hpp>
#include <dunlin/signal.hpp>
#include <dunlin/singleflight.hpp>
#include <dunlin/task_set.hpp>
#include <dunlin/timer.hpp>
#include <dunlin/watch.hpp>
#include <dunlin/weighted_semaphore.hpp>
