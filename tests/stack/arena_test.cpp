#include "stack/arena.h"

#include <dunlin/config.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/signal_of_store.h"

namespace {

using namespace dunlin::stack;
using dunlin::platform::guard_kind;
using dunlin::platform::page_size;
using support::signal_of_store;

constexpr bool sanitized = DUNLIN_ADDRESS_SANITIZER || DUNLIN_THREAD_SANITIZER;

// Arenas are never destroyed, like the one of the library.
arena& new_arena(guard_kind kind = guard_kind::automatic) {
    static std::deque<arena> all;
    all.emplace_back().use_guards(kind);
    return all.back();
}

std::vector<slot*> take(arena& a, std::size_t count, unsigned size_class = dense_class) {
    slot* head = nullptr;
    EXPECT_EQ(a.allocate(size_class, &head, count), count);
    std::vector<slot*> result;
    for (slot* s = head; s != nullptr; s = s->next) {
        result.push_back(s);
    }
    EXPECT_EQ(result.size(), count);
    return result;
}

// The first of the vector becomes the most recently used.
void put(arena& a, const std::vector<slot*>& slots) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
        slots[i]->next = i + 1 < slots.size() ? slots[i + 1] : nullptr;
    }
    if (!slots.empty()) {
        a.recycle(slots.front(), slots.back(), slots.size(), slots.front()->size_class);
    }
}

std::byte* top_page(const slot* s) { return s->end() - page_size(); }

void touch(const slot* s) { std::memset(s->top - 64, 7, 64); }

bool resident(std::byte* page) {
    unsigned char state = 0;
    return mincore(page, page_size(), &state) == 0 && (state & 1) != 0;
}

// The kernel reads on our behalf: EFAULT instead of a fault.
bool readable(const std::byte* address) {
    return syscall(SYS_rt_sigprocmask, SIG_BLOCK, address, nullptr, 8) == 0 || errno != EFAULT;
}

// What a holder may rely on, whatever trim() does meanwhile.
bool protected_as_it_says(const slot* s) {
    switch (s->guard) {
        case protection::bare: return false;
        case protection::by_madvise:
        case protection::by_mprotect: return !readable(s->low() - 8);
        case protection::by_canary: return canary_intact(*s);
        case protection::none: return true;
    }
    return false;
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

// VmRSS or VmPTE, in bytes.
std::size_t from_status(const std::string& key) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == key + ":") {
            std::size_t kib = 0;
            status >> kib;
            return kib * 1024;
        }
    }
    return 0;
}

// Whether an empty page of the page table goes when all that it maps is given back in one call (Linux 6.14).
bool kernel_frees_page_tables() {
    constexpr std::size_t count = 64;
    const std::size_t bytes = count * dunlin::platform::huge_page_size;
    const dunlin::platform::memory_range space{dunlin::platform::reserve(bytes), bytes};
    dunlin::platform::no_huge_pages(space);
    for (std::size_t i = 0; i < count; ++i) {
        space.begin[i * dunlin::platform::huge_page_size] = std::byte{1};
    }
    const std::size_t full = from_status("VmPTE");
    dunlin::platform::give_back({&space, 1});
    const std::size_t empty = from_status("VmPTE");
    dunlin::platform::release(space);
    return full >= empty + count * page_size() / 2;
}

bool has_markers() { return dunlin::platform::probe_guards() == guard_kind::by_madvise; }

// ---- shape

TEST(StackClass, IsTheSmallestThatHoldsWhatIsAskedFor) {
    EXPECT_EQ(slot_bytes(class_for(0)), std::max<std::size_t>(32 << 10, page_size()));
    for (unsigned c = class_for(0); c < class_count; ++c) {
        EXPECT_EQ(class_for(usable_bytes(c)), c);
        EXPECT_EQ(class_for(usable_bytes(c) + 1), c + 1);
    }
    static_assert(no_class == class_count);
    EXPECT_EQ(class_for(std::size_t{1} << 30), no_class);
    EXPECT_EQ(class_for(SIZE_MAX), no_class);
}

TEST(StackClass, AskingFor64KiBGivesAtLeast64KiB) {
    for (std::size_t asked_kib : {1U, 4U, 64U, 512U, 8192U}) {
        arena& a = new_arena();
        for (const slot* s : take(a, 20, class_for(asked_kib * 1024))) {
            EXPECT_GE(s->usable(), asked_kib * 1024);
        }
    }
    EXPECT_EQ(slot_bytes(dense_class), std::size_t{256} << 10);
}

TEST(Stack, LiesInASlotAlignedToItsSizeWithTheGuardBelow) {
    for (unsigned c : {class_for(0), dense_class, 7U, 10U}) {
        for (const slot* s : take(new_arena(), 40, c)) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s->base()) % slot_bytes(c), slot_offset(c));
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s->top) % 64, 0U);
            EXPECT_EQ(s->low(), s->base() + guard_bytes);
            EXPECT_EQ(s->end(), s->base() + slot_bytes(c));
            EXPECT_LT(s->top, s->end());
            EXPECT_GE(s->top, s->end() - colour_bytes - (page_colours(c) - 1) * page_colour_step);
        }
    }
}

TEST(Stack, SixteenNeighboursHaveSixteenColoursInOnePage) {
    std::set<std::size_t> offsets;
    for (const slot* s : take(new_arena(), 16)) {
        offsets.insert(static_cast<std::size_t>(s->end() - s->top));
    }
    EXPECT_EQ(offsets.size(), colours);
    EXPECT_LE(*offsets.rbegin(), colour_bytes);
}

// ---- guards

class StackGuard : public testing::TestWithParam<guard_kind> {
protected:
    void SetUp() override {
        if (GetParam() == guard_kind::by_madvise && !has_markers()) {
            GTEST_SKIP() << "this kernel has no MADV_GUARD_INSTALL";
        }
    }
};

TEST_P(StackGuard, AStoreBelowTheStackFaults) {
    arena& a = new_arena(GetParam());
    const std::vector<slot*> slots = take(a, 3);
    for (const slot* s : slots) {
        EXPECT_EQ(signal_of_store(s->low() - 1), SIGSEGV);
        EXPECT_EQ(signal_of_store(s->base()), SIGSEGV);
        EXPECT_EQ(signal_of_store(s->low()), 0);
        EXPECT_EQ(signal_of_store(s->top - 1), 0);
    }
    EXPECT_EQ(a.stats().kind, GetParam());
    EXPECT_EQ(a.stats().canaries, 0U);
}

TEST_P(StackGuard, EverySlotOfEveryClassHasOne) {
    for (unsigned c : {class_for(0), 1U, dense_class, 5U, 9U}) {
        for (const slot* s : take(new_arena(GetParam()), 150, c)) {
            ASSERT_FALSE(readable(s->base()));
            ASSERT_FALSE(readable(s->low() - 8));
            ASSERT_TRUE(readable(s->low()));
        }
    }
}

TEST_P(StackGuard, ItIsThereAgainAfterATrim) {
    arena& a = new_arena(GetParam());
    std::vector<slot*> slots = take(a, 64);
    std::for_each(slots.begin(), slots.end(), touch);
    put(a, slots);
    EXPECT_EQ(a.trim(100), 64U);
    for (const slot* s : take(a, 64)) {
        ASSERT_FALSE(readable(s->base()));
        ASSERT_FALSE(readable(s->low() - 8));
        ASSERT_TRUE(readable(s->low()));
    }
}

INSTANTIATE_TEST_SUITE_P(Arena, StackGuard, testing::Values(guard_kind::by_madvise, guard_kind::by_mprotect),
                         [](const auto& given) { return std::string(dunlin::platform::to_string(given.param)); });

TEST(StackCanary, TellsWhenTheStackGrewBeyondItsEnd) {
    arena& a = new_arena(guard_kind::by_canary);
    slot* s = take(a, 1).front();
    EXPECT_EQ(s->guard, protection::by_canary);
    EXPECT_TRUE(canary_intact(*s));
    std::memset(s->low(), 0, s->usable());
    EXPECT_TRUE(canary_intact(*s));
    for (std::size_t i = 1; i <= canary_words * 8; ++i) {
        std::byte& victim = *(s->low() - i);
        const std::byte before = std::exchange(victim, ~victim);
        EXPECT_FALSE(canary_intact(*s)) << i;
        victim = before;
    }
    EXPECT_TRUE(canary_intact(*s));
}

TEST(StackCanary, IsWrittenAgainWhenItsPageWasGivenBack) {
    arena& a = new_arena(guard_kind::by_canary);
    put(a, take(a, 64));
    EXPECT_EQ(a.trim(100), 64U);
    for (const slot* s : take(a, 64)) {
        EXPECT_TRUE(canary_intact(*s));
    }
}

TEST(StackCanary, IsAlwaysIntactWhereTheKernelGuards) {
    const slot* s = take(new_arena(), 1).front();
    if (s->guard == protection::by_canary) {
        GTEST_SKIP() << "this kernel guards nothing";
    }
    EXPECT_TRUE(canary_intact(*s));
}

TEST(StackGuardNone, NothingFaultsAndNoPageIsTouched) {
    const slot* s = take(new_arena(guard_kind::none), 1).front();
    EXPECT_EQ(s->guard, protection::none);
    EXPECT_TRUE(canary_intact(*s));
    EXPECT_TRUE(readable(s->base()));
    EXPECT_FALSE(resident(s->low() - page_size()));
}

// vm.max_map_count is a limit of the whole process, which needs mappings for other things too.
TEST(StackGuardMprotect, CanariesTakeOverBeforeMappingsRunOut) {
    const std::size_t limit = dunlin::platform::max_map_count();
    if (limit > 200'000) {
        GTEST_SKIP() << "vm.max_map_count is " << limit << ": to use it up takes too long";
    }
    arena& a = new_arena(guard_kind::by_mprotect);
    const std::size_t before = mappings();
    const std::size_t count = limit / 2 + 500;
    const std::size_t most = (limit - std::min(limit / 2, mappings_left)) / 2;
    const std::vector<slot*> slots = take(a, count, class_for(0));
    const arena_stats stats = a.stats();
    EXPECT_LE(stats.guards_by_mprotect, most);
    // Other tests of this process may have used some up.
    EXPECT_GT(stats.guards_by_mprotect, most - std::min<std::size_t>(most, 1500));
    EXPECT_GE(stats.canaries, count - stats.guards_by_mprotect);
    EXPECT_LT(mappings(), limit);
    EXPECT_FALSE(readable(slots.front()->base()));
    EXPECT_EQ(slots.back()->guard, protection::by_canary);
    EXPECT_TRUE(canary_intact(*slots.back()));
    // Mappings must be left to the tests that follow.
    for (const slot* s : slots) {
        if (s->guard == protection::by_mprotect) {
            mprotect(s->base(), guard_bytes, PROT_READ | PROT_WRITE);
        }
    }
    EXPECT_LT(mappings(), before + 100);
}

// ---- handing out and taking back

TEST(Arena, FreshSlotsComeInAddressOrder) {
    const std::vector<slot*> slots = take(new_arena(), 500);
    for (std::size_t i = 1; i < slots.size(); ++i) {
        EXPECT_TRUE(slots[i]->base() == slots[i - 1]->end() || i == 256) << i;  // the first region has 256
    }
}

TEST(Arena, AHundredThousandStacksNeedNoMappingsOfTheirOwn) {
    if (!has_markers()) {
        GTEST_SKIP() << "this kernel has no MADV_GUARD_INSTALL";
    }
    const std::size_t before = mappings();
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 100'000);
    EXPECT_LE(mappings(), before + (sanitized ? 400 : 40));  // ThreadSanitizer maps its shadow in pieces
    EXPECT_EQ(a.stats().slots_in_use, 100'000U);
    for (std::size_t i = 0; i < slots.size(); i += 997) {
        EXPECT_FALSE(readable(slots[i]->low() - 8));
    }
    EXPECT_EQ(std::set<slot*>(slots.begin(), slots.end()).size(), slots.size());
}

TEST(Arena, AParkedStackCostsOnePageAndItsShareOfPageTable) {
    if (sanitized || !has_markers()) {
        GTEST_SKIP() << "measured without sanitizers, whose shadow would be counted, and with guards that cost none";
    }
    constexpr std::size_t count = 20'000;
    arena& a = new_arena();
    std::vector<slot*> slots;
    slots.reserve(count);
    const std::size_t before = from_status("VmRSS") + from_status("VmPTE");
    slot* head = nullptr;
    ASSERT_EQ(a.allocate(dense_class, &head, count), count);
    for (slot* s = head; s != nullptr; s = s->next) {
        touch(s);
    }
    EXPECT_LT((from_status("VmRSS") + from_status("VmPTE") - before) / count, 4096 + 512 + 32 + 40);
}

TEST(Arena, TheMostRecentlyFreedIsHandedOutFirst) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 10);
    for (slot* s : slots) {
        put(a, {s});
    }
    std::vector<slot*> again = take(a, 10);
    std::reverse(again.begin(), again.end());
    EXPECT_EQ(again, slots);
    put(a, slots);
    EXPECT_EQ(take(a, 10), slots);
}

TEST(Arena, UsedSlotsComeBeforeNewOnes) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 100);
    put(a, {slots[50]});
    const std::vector<slot*> more = take(a, 200);
    EXPECT_EQ(more.front(), slots[50]);
    EXPECT_EQ(a.stats().slots_in_use, 299U);
}

TEST(Arena, WarmSlotsComeBeforeColdOnes) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 64);
    std::for_each(slots.begin(), slots.end(), touch);
    put(a, slots);
    EXPECT_EQ(a.trim(60), 60U);
    const std::vector<slot*> again = take(a, 64);
    EXPECT_TRUE(std::equal(again.begin(), again.begin() + 4, slots.begin()));
}

TEST(Arena, ClassesDoNotMix) {
    arena& a = new_arena();
    const std::vector<slot*> small = take(a, 5, class_for(0));
    put(a, small);
    for (const slot* s : take(a, 5, dense_class)) {
        EXPECT_EQ(s->size_class, dense_class);
    }
    EXPECT_EQ(take(a, 5, class_for(0)), small);
}

TEST(Arena, TheLargestClassWorks) {
    arena& a = new_arena();
    slot* s = take(a, 1, class_count - 1).front();
    EXPECT_GE(s->usable(), (std::size_t{1} << 30) - guard_bytes - colour_bytes);
    touch(s);
    std::memset(s->low(), 7, 64);
    EXPECT_FALSE(readable(s->low() - 8));
    put(a, {s});
    EXPECT_EQ(a.trim(1), 1U);
    EXPECT_FALSE(resident(s->low()));
}

TEST(Arena, AClassThatDoesNotExistIsAnError) {
    arena& a = new_arena();
    slot* head = nullptr;
    int error = 0;
    EXPECT_EQ(a.allocate(no_class, &head, 1, &error), 0U);
    EXPECT_EQ(error, EINVAL);
    EXPECT_EQ(head, nullptr);
}

// In a child, because the limit cannot be lifted again.
TEST(Arena, UnderALimitItReservesWhatIsLeftAndThenSaysSo) {
    if (sanitized) {
        GTEST_SKIP() << "sanitizers reserve terabytes, so no limit on address space can be set";
    }
    const pid_t child = fork();
    if (child == 0) {
        arena& a = new_arena();
        constexpr rlim_t more = (std::size_t{100} << 20);
        const rlimit limit{from_status("VmSize") + more, RLIM_INFINITY};
        setrlimit(RLIMIT_AS, &limit);
        constexpr int not_kept = 77;  // by qemu
        if (mmap(nullptr, 2 * more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(not_kept);
        slot* head = nullptr;
        int error = 0;
        const std::size_t got = a.allocate(dense_class, &head, 100'000, &error);
        const bool most = got * slot_bytes(dense_class) > more * 9 / 10;
        const bool none_left = a.allocate(dense_class, &head, 1) == 0 && head == nullptr;
        _exit(most && error == ENOMEM && none_left ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "address space cannot be limited";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ArenaDeathTest, AStackGivenBackTwiceEndsTheProcess) {
    arena& a = new_arena();
    slot* s = take(a, 1).front();
    put(a, {s});
    EXPECT_DEATH(put(a, {s}), "given back twice");
}

// ---- giving memory back

TEST(ArenaTrim, FreesTheMemoryOfFreeStacksAndOfNoOther) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 1000);
    std::for_each(slots.begin(), slots.end(), touch);
    std::vector<slot*> free;
    std::vector<slot*> held;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        (i % 3 == 0 ? held : free).push_back(slots[i]);
    }
    put(a, free);
    EXPECT_EQ(a.trim(SIZE_MAX), free.size());
    EXPECT_TRUE(std::none_of(free.begin(), free.end(), [](const slot* s) { return resident(top_page(s)); }));
    EXPECT_TRUE(std::all_of(held.begin(), held.end(), [](const slot* s) { return resident(top_page(s)); }));
    EXPECT_TRUE(std::all_of(held.begin(), held.end(), [](const slot* s) { return *(s->top - 1) == std::byte{7}; }));
    EXPECT_TRUE(std::all_of(held.begin(), held.end(), protected_as_it_says));
    const arena_stats stats = a.stats();
    EXPECT_EQ(stats.slots_warm, 0U);
    EXPECT_EQ(stats.slots_in_use, held.size());
    EXPECT_EQ(stats.slots_given_back, free.size());
    EXPECT_EQ(a.trim(SIZE_MAX), 0U);
}

TEST(ArenaTrim, TakesTheColdestAndNotMoreThanAsked) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 100);
    std::for_each(slots.begin(), slots.end(), touch);
    put(a, slots);
    EXPECT_EQ(a.trim(30), 30U);
    for (std::size_t i = 0; i < slots.size(); ++i) {
        EXPECT_EQ(resident(top_page(slots[i])), i < 70) << i;
    }
}

TEST(ArenaTrim, FreesPageTablesOfAnUnusedGroupInWhateverOrderTheSlotsCame) {
    if (sanitized || !has_markers() || !kernel_frees_page_tables()) {
        GTEST_SKIP() << "needs a kernel that frees empty page tables (Linux 6.14), and no sanitizer that adds its own";
    }
    arena& a = new_arena();
    std::vector<slot*> slots = take(a, 4096);  // 2 MiB of page table
    std::for_each(slots.begin(), slots.end(), touch);
    const std::size_t full = from_status("VmPTE");
    std::shuffle(slots.begin(), slots.end(), std::mt19937(8123));
    put(a, slots);
    EXPECT_EQ(a.trim(SIZE_MAX), slots.size());
    EXPECT_GT(full, from_status("VmPTE") + 4096U * 512 * 9 / 10);
    for (const slot* s : take(a, 4096)) {
        ASSERT_FALSE(readable(s->low() - 8));
    }
}

TEST(ArenaTrim, IdleOnlyTakesWhatWasNotNeededSinceTheLastTime) {
    arena& a = new_arena();
    const std::vector<slot*> slots = take(a, 100);
    put(a, slots);
    a.note_idle();
    EXPECT_EQ(a.trim_idle(SIZE_MAX), 0U);  // all were in use a moment ago
    for (int round = 0; round < 3; ++round) {
        put(a, take(a, 40));
    }
    a.note_idle();
    EXPECT_EQ(a.trim_idle(SIZE_MAX), 60U);
    EXPECT_EQ(a.trim_idle(SIZE_MAX), 0U);
    EXPECT_TRUE(a.anything_warm());
    a.note_idle();
    EXPECT_EQ(a.trim_idle(10), 10U);
    EXPECT_EQ(a.trim_idle(SIZE_MAX), 30U);
    EXPECT_FALSE(a.anything_warm());
}

TEST(ArenaTrim, IdleLeavesWhatIsNeededBetweenTwoOfItsSteps) {
    arena& a = new_arena();
    put(a, take(a, 100));
    a.note_idle();
    a.note_idle();
    EXPECT_EQ(a.trim_idle(30), 30U);
    put(a, take(a, 50));
    EXPECT_EQ(a.trim_idle(SIZE_MAX), 20U);
}

// ---- lookup

TEST(ArenaLookup, FindsTheSlotOfAnyAddressInItAndTellsTheGuardApart) {
    arena& a = new_arena();
    for (unsigned c : {class_for(0), dense_class, 8U}) {
        for (slot* s : take(a, 70, c)) {
            const std::pair<std::byte*, bool> cases[] = {
                {s->base(), true}, {s->low() - 1, true}, {s->low(), false}, {s->top - 1, false}, {s->end() - 1, false}};
            for (const auto& [address, in_guard] : cases) {
                const arena::found found = a.lookup(address);
                EXPECT_EQ(found.owner, s);
                EXPECT_EQ(found.in_guard, in_guard);
            }
        }
    }
}

TEST(ArenaLookup, KnowsNothingOfOtherAddresses) {
    arena& a = new_arena();
    EXPECT_EQ(a.lookup(nullptr).owner, nullptr);
    const slot* last = take(a, 64).back();
    int local = 0;
    EXPECT_EQ(a.lookup(&local).owner, nullptr);
    EXPECT_EQ(a.lookup(nullptr).owner, nullptr);
    EXPECT_EQ(a.lookup(reinterpret_cast<void*>(UINTPTR_MAX)).owner, nullptr);
    EXPECT_EQ(a.lookup(last->end()).owner, nullptr);  // reserved, but never cut
}

// ---- together

// Every holder writes its mark at both ends of the stack and finds it unharmed, while others allocate, recycle and
// trim.
TEST(Arena, AStackHasOneHolderAtATimeAndItsMemoryIsNotTakenAway) {
    for (guard_kind kind : {guard_kind::automatic, guard_kind::by_canary, guard_kind::none}) {
        arena& a = new_arena(kind);
        std::atomic<bool> stop{false};
        std::jthread trimmer([&] {
            while (!stop.load(std::memory_order_relaxed)) {
                a.trim(40);
                a.note_idle();
                a.trim_idle(1000);
                a.stats();
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
        });
        std::atomic<int> faults{0};
        {
            std::vector<std::jthread> workers;
            for (unsigned id = 1; id <= 8; ++id) {
                workers.emplace_back([&a, &faults, id] {
                    std::mt19937 random(id);
                    const auto mark = [id](const slot* s) { return reinterpret_cast<std::uintptr_t>(s) + id; };
                    for (int round = 0; round < (sanitized ? 200 : 1000); ++round) {
                        const unsigned c = random() % 4 == 0 ? class_for(0) : dense_class;
                        std::vector<slot*> mine = take(a, 1 + random() % 100, c);
                        for (const slot* s : mine) {
                            reinterpret_cast<std::uintptr_t*>(s->top)[-1] = mark(s);
                            *reinterpret_cast<std::uintptr_t*>(s->low()) = mark(s);
                        }
                        std::shuffle(mine.begin(), mine.end(), random);
                        for (const slot* s : mine) {
                            const bool whole = reinterpret_cast<std::uintptr_t*>(s->top)[-1] == mark(s) &&
                                               *reinterpret_cast<std::uintptr_t*>(s->low()) == mark(s) &&
                                               protected_as_it_says(s) && a.lookup(s->low()).owner == s;
                            faults += whole ? 0 : 1;
                        }
                        put(a, mine);
                    }
                });
            }
        }
        stop = true;
        trimmer.join();
        EXPECT_EQ(faults, 0);
        EXPECT_EQ(a.stats().slots_in_use, 0U);
        a.trim(SIZE_MAX);
        EXPECT_EQ(a.stats().slots_warm, 0U);
    }
}

}  // namespace
