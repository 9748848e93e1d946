// The table by which debuggers find goroutines, read as they read it: by names and bytes.
#include <cstring>
#include <elf.h>
#include <link.h>
#include <map>
#include <set>
#include <string>

#include "sched/goroutines/debug_layout.h"
#include "sched/data/all_goroutines.h"
#include "sched/goroutines/goroutine.h"
#include "support/runtime_test.h"

namespace {

using namespace std::chrono_literals;

// What the table says, from the note in the program's file.
std::map<std::string, std::uint64_t> table_by_note() {
    std::map<std::string, std::uint64_t> table;
    dl_iterate_phdr(
        [](dl_phdr_info* module, std::size_t, void* raw) {
            for (int i = 0; i < module->dlpi_phnum; ++i) {
                const ElfW(Phdr)& segment = module->dlpi_phdr[i];
                if (segment.p_type != PT_NOTE || segment.p_align == 8) continue;
                const auto* at = reinterpret_cast<const char*>(module->dlpi_addr + segment.p_vaddr);
                const auto* end = at + segment.p_memsz;
                while (at + sizeof(ElfW(Nhdr)) < end) {
                    const auto* head = reinterpret_cast<const ElfW(Nhdr)*>(at);
                    const char* name = at + sizeof *head;
                    const char* contents = name + (head->n_namesz + 3) / 4 * 4;
                    if (head->n_type == 2 && std::string(name) == "dunlin") {
                        std::int32_t distance;
                        std::memcpy(&distance, contents, sizeof distance);
                        const auto* t = reinterpret_cast<const dunlin::sched::debug_table*>(contents + distance);
                        EXPECT_EQ(std::memcmp(t->magic, "dunlinDL", 8), 0);
                        EXPECT_EQ(t->version, 1u);
                        for (std::uint32_t k = 0; k < t->entries; ++k) {
                            const dunlin::sched::debug_entry& e = t->entry[k];
                            if (e.name[0] == '\0') continue;
                            auto& into = *static_cast<std::map<std::string, std::uint64_t>*>(raw);
                            EXPECT_TRUE(
                                into.emplace(e.name,
                                        e.address != nullptr ? reinterpret_cast<std::uint64_t>(e.address) : e.number)
                                    .second)
                                << e.name << " is there twice";
                        }
                    }
                    at = contents + (head->n_descsz + 3) / 4 * 4;
                }
            }
            return 0;
        },
        &table);
    return table;
}

template <class T>
T read(std::uint64_t address) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
}

TEST(DebugLayout, IsFoundByItsNote) {
    const auto table = table_by_note();
    EXPECT_GT(table.size(), 40u);
    EXPECT_EQ(table.at("chunks"), reinterpret_cast<std::uint64_t>(&dunlin::sched::the_goroutines.at));
}

class Layout : public support::each_p {};
EACH_P(Layout);

// Every goroutine is found, and what is read of it is what its struct says.
TEST_P(Layout, LeadsToEveryGoroutine) {
    run([] {
        dunlin::wait_group gate;
        gate.add(1);
        constexpr std::size_t count = 50;
        std::vector<dunlin::task<void>> tasks;
        constexpr unsigned waits = __LINE__ + 4;
        for (std::size_t i = 0; i < count; ++i) {
            tasks.push_back(dunlin::spawn({.name = "named" + std::to_string(i),
                                              .labels = {{"key", "a value that is longer than a short string"}}},
                [gate] { gate.wait(); }));
        }
        support::eventually([] { return dunlin::runtime::stats().waiting == count; });
        const auto table = table_by_note();
        const auto t = [&](const char* name) { return table.at(name); };
        const auto text = [&](std::uint64_t string) {
            return std::string(
                read<const char*>(string + t("string.data")), read<std::uint64_t>(string + t("string.size")));
        };
        const auto name_of = [&](const char* array, std::uint64_t i) {
            return std::string(read<const char*>(t(array) + 8 * i));
        };
        const dunlin::sched::goroutine* self = dunlin::sched::current_goroutine();
        std::set<std::string> names;
        bool self_seen = false;
        const auto chunks = read<std::uint64_t>(t("chunk_count"));
        for (std::uint64_t c = 0; c < chunks; ++c) {
            const auto chunk = read<std::uint64_t>(t("chunks") + 8 * c);
            const auto used =
                c + 1 < chunks ? t("chunk_bytes") / t("goroutine.bytes") : read<std::uint64_t>(t("last_used"));
            for (std::uint64_t i = 0; i < used; ++i) {
                const std::uint64_t g = chunk + i * t("goroutine.bytes");
                const auto state = read<std::uint8_t>(g + t("goroutine.state"));
                if (g == reinterpret_cast<std::uint64_t>(self)) {
                    self_seen = true;
                    EXPECT_EQ(state, t("state.running"));
                    EXPECT_EQ(read<std::uint64_t>(g + t("goroutine.id")), dunlin::this_goroutine::id());
                }
                if (state != t("state.waiting")) continue;
                const auto extra = read<std::uint64_t>(g + t("goroutine.extra"));
                if (extra == 0) continue;
                EXPECT_EQ(name_of("state_texts", state), "waiting");
                EXPECT_EQ(
                    name_of("reason_texts", read<std::uint8_t>(g + t("goroutine.reason"))), "sync.WaitGroup.Wait");
                EXPECT_EQ(read<std::uint8_t>(g + t("goroutine.saved")), 1);
                names.insert(text(extra + t("extra.name")));
                const auto labels = read<std::uint64_t>(extra + t("extra.labels"));
                EXPECT_EQ(text(labels), "key");
                EXPECT_EQ(text(labels + t("string.bytes")), "a value that is longer than a short string");
                const auto sp = read<std::uint64_t>(g + t("goroutine.context") + t("context.sp"));
                const auto top = read<std::uint64_t>(read<std::uint64_t>(g + t("goroutine.stack")) + t("slot.top"));
                EXPECT_LT(sp, top);
                EXPECT_GT(sp, top - 16384);
                const auto place = read<std::uint64_t>(g + t("goroutine.waits_at"));
                EXPECT_NE(std::string(read<const char*>(place + t("place.file"))).find("debug_layout_test.cpp"),
                    std::string::npos);
                EXPECT_EQ(read<unsigned>(place + t("place.line")), waits);
                EXPECT_GT(read<std::int64_t>(g + t("goroutine.waits_since_ns")), 0);
                EXPECT_LE(read<std::int64_t>(g + t("goroutine.waits_since_ns")),
                    read<std::int64_t>(t("coarse_now_ns")) + 1'000'000'000);
            }
        }
        EXPECT_TRUE(self_seen);
        EXPECT_EQ(names.size(), count);
        // The machine that runs this.
        std::size_t machines_of_self = 0;
        for (auto m = read<std::uint64_t>(t("machines")); m != 0; m = read<std::uint64_t>(m + t("machine.all_next"))) {
            if (read<std::uint64_t>(m + t("machine.current")) != reinterpret_cast<std::uint64_t>(self)) continue;
            ++machines_of_self;
            EXPECT_EQ(read<int>(m + t("machine.tid")), static_cast<int>(gettid()));
            EXPECT_EQ(read<std::uint8_t>(m + t("machine.ended")), 0);
            const auto p = read<std::uint64_t>(m + t("machine.p"));  // null if the monitor has taken it
            if (p != 0) {
                EXPECT_LT(read<unsigned>(p + t("processor.id")), dunlin::runtime::max_procs());
            }
        }
        EXPECT_EQ(machines_of_self, 1u);
        gate.done();
    });
}

}  // namespace
