// plugin.h - what the plug-in of copies_test does with objects of the program that loads it.
#pragma once

#include <dunlin/dunlin.hpp>
#include <dunlin/mutex.hpp>
#include <dunlin/semaphore.hpp>

namespace copies {

struct objects {
    dunlin::chan<int> in, out, buffered{3};
    dunlin::mutex mutex;
    dunlin::counting_semaphore<> permits{0};
};

}  // namespace copies

#pragma GCC visibility push(default)  // of a plug-in that hides all else, too
extern "C" {
using copies_action = int(copies::objects&);

// Nothing of dunlin.
copies_action copies_nothing;
// A goroutine that answers each number of `in` with its double in `out`.
copies_action copies_serve;
// The first that it does is to send on a channel that a goroutine of the program receives from.
copies_action copies_send;
// The same where there is room, and nothing to be woken.
copies_action copies_fill;
copies_action copies_close;
copies_action copies_lock;
copies_action copies_release;
// run() of its own.
copies_action copies_run;
// What the program does not use, and may therefore not have.
copies_action copies_other_parts;
// The same as run, for a program that has no dunlin and gives no objects; and a goroutine that goes on after it.
int copies_alone();
int copies_still_ticks();
}
#pragma GCC visibility pop
