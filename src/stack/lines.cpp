// lines.cpp - see lines.h. Source: DWARF 5, 6.2 and 7.22; DWARF 4, 6.2.
#include "stack/lines.h"

#include <algorithm>
#include <bitset>
#include <new>

namespace dunlin::inline v0_1::stack {

namespace {

// Reads forward. At the end, and after a failure, there is nothing more to read and every number is 0.
class cursor {
public:
    explicit cursor(file_bytes left = {}) noexcept : left_(left) {}

    bool empty() const noexcept { return left_.empty(); }
    const std::byte* position() const noexcept { return left_.data(); }

    file_bytes take(std::uint64_t count) noexcept {
        if (count > left_.size()) {
            left_ = left_.last(0);
            return {};
        }
        const file_bytes taken = left_.first(count);
        left_ = left_.subspan(count);
        return taken;
    }
    template <class T>
    T number() noexcept {
        T value{};
        const file_bytes from = take(sizeof value);
        if (!from.empty()) std::memcpy(&value, from.data(), sizeof value);
        return value;
    }
    std::uint64_t offset(bool is_64_bit) noexcept {
        return is_64_bit ? number<std::uint64_t>() : number<std::uint32_t>();
    }
    std::uint64_t uleb() noexcept { return leb().value; }
    std::int64_t sleb() noexcept {
        const auto [value, bits, negative] = leb();
        return static_cast<std::int64_t>(negative && bits < 64 ? value | ~std::uint64_t{0} << bits : value);
    }
    std::string_view text() noexcept {
        const std::string_view found = text_at(left_, 0);
        take(found.size() + 1);
        return found;
    }

private:
    struct number_read {
        std::uint64_t value;
        unsigned bits;
        bool negative;
    };
    number_read leb() noexcept {
        number_read n{};
        std::uint8_t byte;
        do {
            byte = number<std::uint8_t>();
            if (n.bits < 64) n.value |= std::uint64_t{byte & 0x7fu} << n.bits;
            n.bits += 7;
        } while (byte & 0x80);
        n.negative = byte & 0x40;
        return n;
    }

    file_bytes left_;
};

struct row {
    std::uintptr_t address = 0;
    std::uint64_t file = 1;
    std::int64_t line = 1;
    bool end = false;  // the first address behind the sequence
};

struct path {
    std::string_view directory, name;
};

// One .debug_line unit: usually one source file and what it includes.
struct unit {
    const line_table::sections* from;
    bool is_64_bit = false;
    std::uint16_t version = 0;
    std::uint8_t instruction_bytes = 1, line_range = 0, opcode_base = 0;
    std::int8_t line_base = 0;
    file_bytes operand_counts;
    cursor tables, rows;

    // Reads the header at the cursor, and puts the cursor behind the unit.
    unit(const line_table::sections& sections, cursor& section) noexcept : from(&sections) {
        std::uint64_t length = section.number<std::uint32_t>();
        is_64_bit = length == 0xffffffff;
        if (is_64_bit) length = section.number<std::uint64_t>();
        rows = cursor(section.take(length));
        version = rows.number<std::uint16_t>();
        if (version >= 5) rows.take(2);  // sizes of addresses and segments
        tables = cursor(rows.take(rows.offset(is_64_bit)));
        instruction_bytes = tables.number<std::uint8_t>();
        tables.take(version >= 4 ? 2 : 1);  // operations per instruction, is_stmt
        line_base = tables.number<std::int8_t>();
        line_range = tables.number<std::uint8_t>();
        opcode_base = tables.number<std::uint8_t>();
        operand_counts = tables.take(opcode_base != 0 ? opcode_base - 1u : 0u);
    }

    bool valid() const noexcept {
        return version >= 2 && version <= 5 && line_range != 0 && opcode_base != 0 &&
            operand_counts.size() == opcode_base - 1u;
    }

    bool next_row(cursor& program, row& r) const noexcept;
    bool of_library(std::uint64_t file) const noexcept;
    path file(std::uint64_t index) const noexcept;

private:
    bool extended(cursor& program, row& r) const noexcept;
    struct entry {
        std::string_view name;
        std::uint64_t directory = 0;
    };
    entry entry_of(cursor& table, std::uint64_t index) const noexcept;
};

bool unit::extended(cursor& program, row& r) const noexcept {
    cursor operands(program.take(program.uleb()));
    switch (operands.number<std::uint8_t>()) {
    case 1: return r.end = true;
    case 2: r.address = operands.number<std::uintptr_t>(); break;
    default: break;  // discriminators and what producers invent
    }
    return false;
}

// Executes the program up to the next row that it makes. False at its end.
bool unit::next_row(cursor& program, row& r) const noexcept {
    while (!program.empty()) {
        const unsigned opcode = program.number<std::uint8_t>();
        if (opcode >= opcode_base) {
            r.address += (opcode - opcode_base) / line_range * instruction_bytes;
            r.line += line_base + static_cast<int>((opcode - opcode_base) % line_range);
            return true;
        }
        switch (opcode) {
        case 0:
            if (extended(program, r)) return true;
            break;
        case 1: return true;
        case 2: r.address += program.uleb() * instruction_bytes; break;
        case 3: r.line += program.sleb(); break;
        case 4: r.file = program.uleb(); break;
        case 8: r.address += (255u - opcode_base) / line_range * instruction_bytes; break;
        case 9: r.address += program.number<std::uint16_t>(); break;
        default:  // columns, ends of prologues, and opcodes yet to be invented
            for (auto count = std::to_integer<unsigned>(operand_counts[opcode - 1]); count > 0; --count) program.uleb();
        }
    }
    return false;
}

// DWARF 5: a table begins with the columns of its entries. Leaves the cursor behind the table.
unit::entry unit::entry_of(cursor& table, std::uint64_t index) const noexcept {
    const unsigned columns = table.number<std::uint8_t>();
    const cursor formats = table;
    for (unsigned i = 0; i < 2 * columns; ++i) table.uleb();
    entry result;
    const std::uint64_t count = table.uleb();
    for (std::uint64_t i = 0; i < count && !table.empty(); ++i) {
        entry e;
        cursor format = formats;
        for (unsigned column = 0; column < columns; ++column) {
            const std::uint64_t content = format.uleb();
            std::string_view text;
            std::uint64_t number = 0;
            switch (format.uleb()) {
            case 0x08: text = table.text(); break;
            case 0x1f: text = text_at(from->line_strings, table.offset(is_64_bit)); break;
            case 0x0e: text = text_at(from->strings, table.offset(is_64_bit)); break;
            case 0x0b: number = table.number<std::uint8_t>(); break;
            case 0x05: number = table.number<std::uint16_t>(); break;
            case 0x06: number = table.number<std::uint32_t>(); break;
            case 0x07: number = table.number<std::uint64_t>(); break;
            case 0x0f: number = table.uleb(); break;
            case 0x1e: table.take(16); break;            // a checksum
            case 0x09: table.take(table.uleb()); break;  // a block
            default: table = cursor(); break;            // of unknown size
            }
            if (content == 1) e.name = text;
            if (content == 2) e.directory = number;
        }
        if (i == index) result = e;
    }
    return result;
}

path unit::file(std::uint64_t index) const noexcept {
    cursor directories = tables, table = tables;
    if (version >= 5) {
        entry_of(table, 0);
        const entry e = entry_of(table, index);
        return {entry_of(directories, e.directory).name, e.name};
    }
    while (!table.text().empty()) {
    }
    entry e;
    for (std::uint64_t i = 1; i <= index; ++i) {
        e.name = table.text();
        if (e.name.empty()) return {};
        e.directory = table.uleb();
        table.uleb();  // time
        table.uleb();  // size
    }
    std::string_view directory;
    for (std::uint64_t i = 1; i <= e.directory && !directories.empty(); ++i) directory = directories.text();
    return {directory, e.name};
}

bool unit::of_library(std::uint64_t index) const noexcept {
    const path p = file(index);
    for (const std::string_view part : {p.directory, p.name}) {
        if (part.find("include/c++/") != part.npos || part.find("include/dunlin") != part.npos) return true;
    }
    return false;
}

// Keeps the answers of unit::of_library(), which reads the whole table: once for each file.
class library_files {
public:
    explicit library_files(const unit& u) noexcept : unit_(u) {}
    bool contains(std::uint64_t file) noexcept {
        if (file >= known_.size()) return unit_.of_library(file);
        if (!known_[file]) library_[file] = unit_.of_library(file);
        known_[file] = true;
        return library_[file];
    }

private:
    const unit& unit_;
    std::bitset<256> known_, library_;
};

}  // namespace

void line_table::index(const sections& from) noexcept {
    // A sequence has at least two extended instructions, set_address (11 bytes) and end_sequence (3). Pages not touched
    // cost nothing.
    const std::size_t most = from.line.size() / 14;
    if (most == 0) return;
    memory_.bytes = most * sizeof(sequence);
    memory_.begin = platform::reserve(memory_.bytes, platform::page_size());
    if (memory_.begin == nullptr) return;
    from_ = from;
    auto* const first = reinterpret_cast<sequence*>(memory_.begin);
    std::size_t count = 0;
    const auto offset = [&](const cursor& c) { return static_cast<std::uint64_t>(c.position() - from.line.data()); };
    for (cursor section(from.line); !section.empty();) {
        const std::uint64_t unit_begin = offset(section);
        const unit u(from_, section);
        if (!u.valid()) continue;
        cursor program = u.rows;
        sequence s{UINTPTR_MAX, 0, unit_begin, offset(program)};
        for (row r; u.next_row(program, r);) {
            s.begin = std::min(s.begin, r.address);
            if (!r.end) continue;
            // Code that the linker dropped is left at address 0.
            s.end = r.address;
            if (s.begin != 0 && s.begin < s.end && count < most) ::new (first + count++) sequence(s);
            s = {UINTPTR_MAX, 0, unit_begin, offset(program)};
            r = {};
        }
    }
    sequences_ = {first, count};
    std::sort(sequences_.begin(), sequences_.end(),
        [](const sequence& a, const sequence& b) { return a.begin < b.begin; });
}

void line_table::release() noexcept {
    if (memory_.begin != nullptr) platform::release(memory_);
    *this = {};
}

source_line line_table::find(std::uintptr_t function, std::uintptr_t address) const noexcept {
    const auto after = std::upper_bound(sequences_.begin(), sequences_.end(), address,
        [](std::uintptr_t a, const sequence& s) { return a < s.begin; });
    if (after == sequences_.begin()) return {};
    const sequence& s = *std::prev(after);
    if (address >= s.end) return {};

    cursor section(from_.line.subspan(s.unit));
    const unit u(from_, section);
    cursor program(from_.line.subspan(s.rows,
        static_cast<std::size_t>(section.position() - from_.line.data()) - s.rows));
    library_files library(u);
    row last, own;
    last.line = own.line = 0;
    for (row r; u.next_row(program, r) && !r.end && r.address <= address;) {
        last = r;
        if (r.line > 0 && r.address >= function && !library.contains(r.file)) own = r;
    }
    const row& best = own.line > 0 ? own : last;
    if (best.line <= 0) return {};
    const std::string_view name = u.file(best.file).name;
    return {name.substr(name.rfind('/') + 1), name.empty() ? 0 : static_cast<unsigned>(best.line),
        best.address == last.address && best.line == last.line};
}

}  // namespace dunlin::stack
