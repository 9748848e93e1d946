// abandon_rows.h - the subjects that wait without the kernel, for tables of abandon_table.h: they are played in real
// time (abandoned_wait_test.cpp) and in that of dunlin::sim (simulated_wait_test.cpp).
#pragma once

#include "vocabulary/abandon.h"
#include "vocabulary/abandon_chan.h"
#include "vocabulary/abandon_sync.h"
#include "vocabulary/abandon_table.h"
#include "vocabulary/abandon_words.h"

namespace abandon {

inline const row rows_in_memory[] = {
    {"chan_recv", make<chan_recv<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_recv_buffered", make<chan_recv<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send", make<chan_send<0>>, {.timed = true, .closes = true, .destroys = true}},
    {"chan_send_buffered", make<chan_send<2>>, {.timed = true, .closes = true, .destroys = true}},
    {"select_recv", make<select_recv>, {.timed = true, .closes = true}},
    {"select_send", make<select_send>, {.timed = true, .closes = true}},
    {"mutex", make<mutex_lock>, {.timed = true, .destroys = true}},
    {"shared_mutex_lock", make<shared_lock_write>, {.timed = true, .destroys = true}},
    {"shared_mutex_lock_shared", make<shared_lock_read>, {.timed = true, .for_all = true, .destroys = true}},
    {"condition_variable", make<condition_wait<dunlin::condition_variable>>, {.timed = true}},
    {"condition_variable_bare", make<bare_condition_wait>, {.timed = true, .destroys = true}},
    {"semaphore", make<semaphore_acquire>, {.timed = true, .destroys = true}},
    {"latch", make<latch_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"barrier", make<barrier_wait>, {.for_all = true}},
    {"wait_group", make<wait_group_wait>, {.timed = true, .for_all = true, .destroys = true}},
    {"future", make<future_get>, {.timed = true, .closes = true, .for_all = true, .waiters = 1}},
    {"task", make<task_get>, {.timed = true, .for_all = true, .waiters = 1}},
    {"task_group", make<task_group_wait>, {.for_all = true, .destroys = true, .waiters = 1}},
    {"task_group_place", make<task_group_place>, {}},
    {"task_set", make<task_set_next>, {.timed = true}},
    {"notify_one", make<notify_one_wait>, {.timed = true, .destroys = true}},
    {"notify_waiters", make<notify_waiters_wait>, {.timed = true, .for_all = true}},
    {"watch", make<following_recv<dunlin::watch<int>>>, {.timed = true, .closes = true, .for_all = true}},
    {"broadcast", make<following_recv<dunlin::broadcast<int>>>, {.timed = true, .closes = true, .for_all = true}},
    {"weighted_semaphore", make<weighted_acquire>, {.timed = true, .closes = true, .destroys = true}},
    {"weighted_semaphore_behind_many", make<weighted_behind_many>,
        {.timed = true, .for_all = true, .freed_by_leaver = true}},
    {"singleflight", make<singleflight_call>, {.timed = true, .for_all = true}},
    {"retry_once", make<retry_once_call>, {.timed = true, .for_all = true}},
    {"shared_future", make<shared_future_get>, {.timed = true, .closes = true, .for_all = true}},
};

}  // namespace abandon
