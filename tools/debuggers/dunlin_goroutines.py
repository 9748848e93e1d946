"""The goroutines of a process or core, read through dunlin's table (src/sched/goroutines/debug_layout.h): what the
debuggers' scripts share.

A tool brings a memory: an object with read(address, size) -> bytes, which raises an exception where there is nothing to read. It finds
the note by itself and gives its address; everything else is read from there.
"""

import re
import struct

NOTE_SECTION = ".note.dunlin.layout"
NOTE_OWNER, NOTE_TYPE = b"dunlin\0", 2
NOTE_HEADER = 20  # what stands before its four bytes
MAGIC, VERSION = b"dunlinDL", 1
ENTRY = struct.Struct("<32sQQ")
CODE_MARK = 1 << 63
CHUNKS_READ = 1 << 16  # at most; the array has as many places


class NoGoroutines(Exception):
    """There are none that could be read, and why."""


def is_loaded(memory, note):
    """Does the note lead to a table?"""
    distance = struct.unpack("<i", memory.read(note + NOTE_HEADER, 4))[0]
    try:
        return memory.read(note + NOTE_HEADER + distance, 8) == MAGIC
    except Exception:
        return False


def table_at(memory, note):
    """The table by name, from the address of the note."""
    distance = struct.unpack("<i", memory.read(note + NOTE_HEADER, 4))[0]
    at = note + NOTE_HEADER + distance
    magic, version, entries = struct.unpack("<8sII", memory.read(at, 16))
    if magic != MAGIC:
        raise NoGoroutines("the table of dunlin's layout is damaged")
    if version != VERSION:
        raise NoGoroutines(f"this program's dunlin has a layout of version {version}, these scripts read {VERSION}: use those of its installation")
    table = {}
    for name, number, address in ENTRY.iter_unpack(memory.read(at + 16, entries * ENTRY.size)):
        name = name.rstrip(b"\0").decode()
        if name:
            table[name] = address or number
    return table


class Goroutine:
    """One of them. `registers`: (sp, fp, pc) if it is not on a thread; `thread`: the number of its thread in the kernel, or 0."""

    def __init__(self, reader, raw, address):
        t = reader.table
        word = lambda offset: struct.unpack_from("<Q", raw, offset)[0]
        self.reader, self.address = reader, address
        self.id = word(t["goroutine.id"])
        self.state_number = raw[t["goroutine.state"]]
        self.reason_number = raw[t["goroutine.reason"]]
        self.flags = raw[t["goroutine.flags"]]
        self.saved = raw[t["goroutine.saved"]] != 0
        context = t["goroutine.context"]
        self.sp, self.fp, self.pc = (word(context + t["context." + r]) for r in ("sp", "fp", "pc"))
        self.slot = word(t["goroutine.stack"])
        self.created_at = word(t["goroutine.created_at"])
        self.waits_at = word(t["goroutine.waits_at"])
        self.since_ns = struct.unpack_from("<q", raw, t["goroutine.waits_since_ns"])[0]
        self.extra = word(t["goroutine.extra"])
        self.thread, self.processor, self.lent = reader.threads.get(address, (0, None, False))
        self.name, self.labels = reader.extra(self.extra)

    @property
    def waits(self):
        return self.state_number == self.reader.table["state.waiting"]

    @property
    def runs(self):
        return self.state_number in (self.reader.table["state.running"], self.reader.table["state.preempted"])

    @property
    def runs_child(self):
        return self.waits and self.reason_number == self.reader.table["reason.in_place_join"]

    @property
    def registers(self):
        if self.runs:
            # It has called something on its thread's stack (on_thread_stack), and its own stack waits for that.
            return (self.sp, self.fp, self.pc) if self.lent else None
        if self.slot == 0 or not self.saved or self.runs_child:
            return None
        return (self.sp, self.fp, self.pc)

    @property
    def stack_top(self):
        return self.reader.pointer(self.slot + self.reader.table["slot.top"]) if self.slot else 0

    @property
    def state(self):
        """As in dumps: "chan receive", "running", "blocking call"."""
        t = self.reader.table
        if self.waits or (self.state_number == t["state.running"] and self.reason_number == t["reason.blocking_call"]):
            return self.reader.reasons[self.reason_number]
        text = self.reader.states[self.state_number]
        return text + ", in place" if self.flags & t["flag.in_place"] else text

    @property
    def waited_ns(self):
        """Since it waits, as far as the process knows the time; 0: it does not."""
        if not self.waits or self.since_ns == 0:
            return 0
        return max(0, self.reader.now_ns - self.since_ns)

    @property
    def title(self):
        text = f"goroutine {self.id}"
        if self.name:
            text += f' "{self.name}"'
        return text

    @property
    def remarks(self):
        """[sleep, 3.1 s, locked to thread]"""
        words = [self.state]
        if self.waited_ns >= 1_000_000:
            words.append(duration(self.waited_ns))
        if self.flags & self.reader.table["flag.wired"]:
            words.append("locked to thread")
        return words

    @property
    def wait_place(self):
        return self.reader.place(self.waits_at) if self.waits else ""

    @property
    def creation_place(self):
        """(text, 0), or ("", the address of the code after the call)."""
        if self.created_at & CODE_MARK:
            return "", self.created_at & ~CODE_MARK
        return self.reader.place(self.created_at), 0


class Reader:
    """All goroutines of one copy of the library. `now_ns`: the monotonic clock if the process lives, or 0."""

    def __init__(self, memory, note, now_ns=0):
        self.memory = memory
        self.table = table_at(memory, note)
        self.texts, self.places, self.extras = {}, {}, {}
        self.states = self._texts("state_texts", "states")
        self.reasons = self._texts("reason_texts", "reasons")
        self.now_ns = max(now_ns, struct.unpack("<q", memory.read(self.table["coarse_now_ns"], 8))[0])
        self.threads = self._threads()

    def pointer(self, address):
        return struct.unpack("<Q", self.memory.read(address, 8))[0]

    def text(self, address):
        """Texts end with a zero; one that cannot be read is "?"."""
        if address == 0:
            return ""
        if address not in self.texts:
            data = b""
            try:
                while b"\0" not in data and len(data) < 4096:
                    data += self.memory.read(address + len(data), 32)
            except Exception:
                try:  # it may stand at the end of what there is
                    while b"\0" not in data:
                        data += self.memory.read(address + len(data), 1)
                except Exception:
                    data = data or b"?"
            self.texts[address] = data.split(b"\0")[0].decode(errors="replace")
        return self.texts[address]

    def place(self, address):
        """file.cpp:12 of a source location, or "" """
        if address == 0:
            return ""
        if address not in self.places:
            t = self.table
            try:
                file = self.text(self.pointer(address + t["place.file"]))
                line = struct.unpack("<I", self.memory.read(address + t["place.line"], 4))[0]
                self.places[address] = f"{file.rsplit('/', 1)[-1]}:{line}" if line else ""
            except Exception:
                self.places[address] = "?"
        return self.places[address]

    def string(self, address):
        """A std::string."""
        t = self.table
        try:
            data, size = self.pointer(address + t["string.data"]), self.pointer(address + t["string.size"])
            return self.memory.read(data, min(size, 4096)).decode(errors="replace") if size else ""
        except Exception:
            return "?"

    def extra(self, address):
        """(name, [(key, value)])"""
        if address == 0:
            return "", []
        if address not in self.extras:
            t = self.table
            labels = []
            try:
                begin, end = struct.unpack("<QQ", self.memory.read(address + t["extra.labels"], 16))
                for at in range(begin, min(end, begin + 64 * 2 * t["string.bytes"]), 2 * t["string.bytes"]):
                    labels.append((self.string(at), self.string(at + t["string.bytes"])))
            except Exception:
                pass
            self.extras[address] = (self.string(address + t["extra.name"]), labels)
        return self.extras[address]

    def goroutines(self):
        """All that are alive, by their numbers."""
        t = self.table
        count = struct.unpack("<Q", self.memory.read(t["chunk_count"], 8))[0]
        last_used = struct.unpack("<Q", self.memory.read(t["last_used"], 8))[0]
        size, in_a_chunk = t["goroutine.bytes"], t["chunk_bytes"] // t["goroutine.bytes"]
        if count > CHUNKS_READ or last_used > in_a_chunk:
            raise NoGoroutines("dunlin's list of goroutines is damaged")
        gone = (t["state.dead"], t["state.frozen"])
        result = []
        for i in range(count):
            chunk = self.pointer(t["chunks"] + 8 * i)
            used = in_a_chunk if i + 1 < count else last_used
            raw = self.memory.read(chunk, used * size)
            for k in range(used):
                one = raw[k * size:(k + 1) * size]
                if one[t["goroutine.state"]] not in gone:
                    result.append(Goroutine(self, one, chunk + k * size))
        result.sort(key=lambda g: g.id)
        return result

    def _texts(self, array, count):
        n = self.table[count]
        pointers = struct.unpack(f"<{n}Q", self.memory.read(self.table[array], 8 * n))
        return [self.text(p) for p in pointers]

    def _threads(self):
        """goroutine's address -> (number of its thread, of its processor or None, the thread's own stack is in use)"""
        t, result = self.table, {}
        m, left = self.pointer(t["machines"]), 100_000
        while m != 0 and left:
            left -= 1
            if self.memory.read(m + t["machine.ended"], 1) == b"\0":
                tid = struct.unpack("<i", self.memory.read(m + t["machine.tid"], 4))[0]
                p = self.pointer(m + t["machine.p"])
                processor = struct.unpack("<I", self.memory.read(p + t["processor.id"], 4))[0] if p else None
                lent = self.memory.read(m + t["machine.in_thread_call"], 1) != b"\0"
                for field in ("machine.leaving", "machine.current"):
                    g = self.pointer(m + t[field])
                    if g:
                        result[g] = (tid, processor, lent)
            m = self.pointer(m + t["machine.all_next"])
        return result


def duration(ns):
    """As in dumps: 3.1 ms, 12 s."""
    for unit, name in ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")):
        if ns >= unit:
            value = ns / unit
            return f"{value:.0f} {name}" if value >= 100 else f"{value:.1f} {name}"
    return f"{ns} ns"


# ---- what of a stack is the program's

RUNTIME = re.compile(
    r"dunlin_|_Unwind_|(?:\w+::)*(?:<lambda|\{lambda)?"
    r"dunlin::(?:platform|stack|sched|park|timers|poll|observe|detail|netpoll)::|std::(?:__)?(?:invoke|apply)|std::__invoke_impl|std::__apply_impl")


def as_written(function):
    """The name without the inline namespace of dunlin's version, which no program writes."""
    return re.sub(r"\bdunlin::v\d+_\d+::", "dunlin::", function)


def of_program(function):
    """Is a function of that name the program's own, and not one that runs it?"""
    return not RUNTIME.match(function)


def of_library(function):
    """A function that the program calls to wait: dunlin::mutex::lock, std::lock_guard's constructor."""
    return function.startswith(("dunlin::", "std::"))


# ---- those that are alike

class Stacks:
    """Stacks of parked goroutines, without unwinding each.

    An unwinder says where in a stack the return addresses are. Another goroutine that stopped at the same instruction and has the same
    return addresses at the same distances from its stack pointer has the same frames. So one of each kind is unwound, and of the others
    only memory is read. Only on x86-64, where the return address is at the caller's stack pointer minus 8; `unwind(goroutine)` gives
    [(pc, sp)] from the innermost frame on, without those that were inlined; sp None: it has no return address.
    """

    DEPTH = 1 << 14  # bytes that are read of a stack
    KINDS = 16       # per instruction: more than that, and others are unwound

    def __init__(self, memory, unwind):
        self.memory, self.unwind, self.known = memory, unwind, {}

    def frames_of(self, g):
        """The pcs."""
        sp, _, pc = g.registers
        try:
            raw = self.memory.read(sp, max(0, min(self.DEPTH, g.stack_top - sp)))
        except Exception:
            raw = b""
        kinds = self.known.setdefault(pc, [])
        for depth, places, frames in kinds:
            if depth == len(raw) and all(struct.unpack_from("<Q", raw, at)[0] == value for at, value in places):
                return frames
        unwound = self.unwind(g)
        frames = tuple(p for p, _ in unwound)
        places = [(s - 8 - sp, p) for p, s in unwound[1:] if s is not None]
        sure = all(0 <= at <= len(raw) - 8 and struct.unpack_from("<Q", raw, at)[0] == value for at, value in places)
        if sure and places and len(kinds) < self.KINDS:
            kinds.append((len(raw), places, frames))
        return frames


def alike(goroutines, stack_of):
    """[[goroutine]]: those of a state, stack, places of waiting and creation, name and labels together; the longest wait first."""
    groups = {}
    for g in goroutines:
        key = (g.state, g.flags, stack_of(g), g.waits_at if g.waits else 0, g.created_at, g.name, tuple(g.labels))
        groups.setdefault(key, []).append(g)
    result = list(groups.values())
    result.sort(key=lambda group: (-max(g.waited_ns for g in group), group[0].id))
    return result


def heading(group):
    """goroutine 7 [chan receive, 1.0 s to 3.1 s], and 999 like it: 8, 9, 10 and 996 more"""
    first = group[0]
    words = first.remarks
    if len(group) > 1:
        waits = [g.waited_ns for g in group]
        least, most = duration(min(waits)), duration(max(waits))
        if least != most and max(waits) >= 1_000_000:
            words = [first.state, f"{least} to {most}"] + [w for w in words[1:] if w != duration(first.waited_ns)]
    text = f"{first.title} [{', '.join(words)}]"
    if len(group) > 1:
        named = group[1:11]
        text += f", and {len(group) - 1} like it: {', '.join(str(g.id) for g in named)}"
        if len(group) - 1 > len(named):
            text += f" and {len(group) - 1 - len(named)} more"
    return text
