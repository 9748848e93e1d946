"""Goroutines in gdb, of a live process or a core file. Load it with:  source .../share/dunlin/dunlin_gdb.py

info goroutines [-all] [-stacks] [REGEX]  those that are alike together, the longest waits first
goroutine N COMMAND                       COMMAND (bt, frame 2, info locals, ...) on the stack of goroutine N
goroutine all COMMAND                     the same for each of them
goroutine N                               all following commands, until the process goes on or `goroutine none`

Of a goroutine that is not on a thread frame #0 stands for whatever the debugger's thread does: its own begin with #1. A goroutine that
is on a thread (running, preempted, in a call that blocks) is that thread: `thread find` and `thread` work as usual.
"""

import os
import re
import sys
import time

import gdb
import gdb.unwinder

sys.path.insert(0, os.path.dirname(os.path.abspath(os.path.realpath(__file__))))
import dunlin_goroutines as dg  # noqa: E402


def write(text):
    """What the terminal has no letters for is written as \\x.. (names and labels are anything)."""
    text = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    try:
        gdb.write(text)
    except (gdb.error, UnicodeError):
        gdb.write(text.encode("ascii", "backslashreplace").decode())


class Memory:
    def read(self, address, size):
        return bytes(gdb.selected_inferior().read_memory(address, size)) if size else b""


def notes():
    """The addresses of the library's notes in the process."""
    found = []
    for line in gdb.execute("info files", to_string=True).splitlines():
        match = re.match(r"\s*(0x[0-9a-f]+) - 0x[0-9a-f]+ is " + re.escape(dg.NOTE_SECTION), line)
        if match:
            found.append(int(match[1], 16))
    return found


def is_core():
    target = gdb.selected_inferior()
    try:
        return target.connection is not None and target.connection.type == "core"
    except AttributeError:  # before gdb 11
        return "core" in gdb.execute("info target", to_string=True)


def now_ns():
    """The clock of the process, if it is this machine's."""
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) if connection is not None and connection.type == "native" else 0


def readers():
    if gdb.selected_inferior().pid == 0:
        raise gdb.GdbError("dunlin: there is no process and no core file to look at")
    found = []
    for note in notes():
        try:
            found.append(dg.Reader(Memory(), note, now_ns()))
        except gdb.MemoryError as error:
            raise gdb.GdbError(f"dunlin: {error} (is the core file whole?)")
        except dg.NoGoroutines as error:
            raise gdb.GdbError(f"dunlin: {error}")
    if not found:
        raise gdb.GdbError("dunlin: no part of this program uses dunlin (there is no section " + dg.NOTE_SECTION + ")")
    return found


def goroutines():
    result = []
    for reader in readers():
        try:
            result += reader.goroutines()
        except (gdb.MemoryError, dg.NoGoroutines) as error:
            gdb.write(f"dunlin: {error}\n", gdb.STDERR)
    return result


# ---- a stack that no thread is on

X86 = ("rsp", "rbp", "rip")
ARM = ("sp", "x29", "pc")
SYSTEM = re.compile(r"(libc|libpthread|libstdc\+\+|libgcc_s|ld-linux.*)[.-]")
DEEPEST = 256  # frames that are looked at for a list


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Unwinder(gdb.unwinder.Unwinder):
    """Says that frame #0 of the selected thread was called by the goroutine."""

    def __init__(self):
        super().__init__("dunlin goroutine")
        self.registers = None

    def __call__(self, pending):
        if self.registers is None or pending.level() != 0:
            return None
        names = ARM if pending.architecture().name().startswith("aarch64") else X86
        sp, fp, pc = self.registers
        here = pending.read_register(names[2])
        # Below the goroutine's frames, as a callee's is: gdb looks whether stacks grow as they should.
        info = pending.create_unwind_info(FrameId(gdb.Value(sp - 16), here))
        for name, value in zip(names, (sp, fp, pc)):
            info.add_saved_register(name, gdb.Value(value).cast(pending.read_register(name).type))
        return info


unwinder = Unwinder()
gdb.unwinder.register_unwinder(None, unwinder, replace=True)


class On:
    """While it lives, the selected stack is that of goroutine g."""

    def __init__(self, g):
        self.g = g

    def __enter__(self):
        self.thread = gdb.selected_thread()
        self.frame = gdb.selected_frame().level() if self.thread is not None and self.thread.is_valid() else 0
        self.before = unwinder.registers
        enter(self.g)
        return self

    def __exit__(self, *error):
        unwinder.registers = self.before
        gdb.invalidate_cached_frames()
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()
            for _ in range(self.frame):
                older = gdb.selected_frame().older()
                if older is not None:
                    older.select()


def thread_of(number):
    for thread in gdb.selected_inferior().threads():
        if number in thread.ptid[1:]:
            return thread
    return None


def enter(g):
    """Selects the stack of g, its innermost frame."""
    if g.registers is not None:
        unwinder.registers = g.registers
        gdb.invalidate_cached_frames()
        gdb.newest_frame().older().select()
        return
    if g.thread:
        thread = thread_of(g.thread)
        if thread is None:
            raise gdb.GdbError(f"dunlin: {g.title} is on thread {g.thread}, which the debugger does not know")
        unwinder.registers = None
        gdb.invalidate_cached_frames()
        thread.switch()
        gdb.newest_frame().select()
        return
    if g.runs_child:
        raise gdb.GdbError(f"dunlin: {g.title} runs a child on its stack: look at the child")
    raise gdb.GdbError(f"dunlin: {g.title} has not begun")


def unwound(g):
    """[(pc, sp)] of the frames that were called, innermost first."""
    result = []
    try:
        with On(g):
            frame = gdb.selected_frame()
            stack_pointer = ARM[0] if frame.architecture().name().startswith("aarch64") else X86[0]
            interrupted = False
            while frame is not None and frame.is_valid() and len(result) < DEEPEST:
                if frame.type() == gdb.SIGTRAMP_FRAME:
                    result.clear()  # a handler is not what the goroutine does
                    interrupted = True
                elif frame.type() != gdb.INLINE_FRAME:
                    # The instruction before this address is the call; where there was none it is the next one.
                    after = frame.pc() + (1 if interrupted or (not result and g.registers is None) else 0)
                    # One that has left by a tail call has no return address any more; gdb knows of it all the same.
                    gone = frame.type() == gdb.TAILCALL_FRAME
                    result.append((after, None if gone else int(frame.read_register(stack_pointer))))
                    interrupted = False
                frame = frame.older()
    except gdb.error:
        pass
    return result


def names_of(pc):
    """([function], " at file.cpp:12" or the like): the functions whose code this is, those that were inlined first."""
    functions, block = [], None
    try:
        block = gdb.block_for_pc(pc)
    except (gdb.error, RuntimeError):
        pass
    while block is not None and not block.is_global and not block.is_static:
        if block.function is not None:
            functions.append(dg.as_written(str(block.function)))
        block = block.superblock
    sal = gdb.find_pc_line(pc)
    line = f" at {os.path.basename(sal.symtab.filename)}:{sal.line}" if sal.symtab is not None and sal.line else ""
    if functions:
        return functions, line
    text = gdb.execute(f"info symbol {pc:#x}", to_string=True).strip()
    match = re.match(r"(.*?)(?: \+ \d+)? in section [^ ]+(?: of (.*))?$", text)
    if match:
        return [dg.as_written(match[1])], line
    library = gdb.solib_name(pc)
    return [f"{pc:#x}"], f" in {os.path.basename(library)}" if library else ""


class Names:
    """Of addresses that calls return to, each looked up once."""

    def __init__(self):
        self.known = {}

    def of(self, pc):
        if pc not in self.known:
            self.known[pc] = names_of(pc - 1)
        return self.known[pc]

    def one(self, pc):
        functions, line = self.of(pc)
        return functions[0] + line

    def first_of_program(self, pcs):
        named = [self.of(pc) for pc in pcs if not SYSTEM.match(os.path.basename(gdb.solib_name(pc) or ""))]
        for usable in (lambda f: dg.of_program(f) and not dg.of_library(f), dg.of_program):
            for functions, line in named:
                for function in functions:
                    if usable(function) and not function.startswith("0x"):
                        return function + (line if function is functions[0] else "")
        return ""


def stack_reader():
    stacks = dg.Stacks(Memory(), unwound)
    plain = gdb.selected_inferior().architecture().name().startswith("i386")

    def frames_of(g):
        if g.registers is not None:
            return stacks.frames_of(g) if plain else tuple(pc for pc, _ in unwound(g))
        return tuple(pc for pc, _ in unwound(g)) if g.thread else ()

    return frames_of


def describe(group, frames, names, whole):
    """The lines of a group."""
    first = group[0]
    lines = [dg.heading(group)]
    if first.labels:
        lines.append("    labels: " + " ".join(f"{key}={value}" for key, value in first.labels))
    if first.thread and first.runs:
        thread = thread_of(first.thread)
        if thread is not None and len(group) == 1:
            lines.append(f"    on thread {thread.num} (LWP {first.thread})" + (f", processor {first.processor}" if first.processor is not None else ""))
    if first.wait_place:
        lines.append(f"    waits at {first.wait_place}")
    if whole:
        lines += [f"    #{i} {pc:#x} {names.one(pc)}" for i, pc in enumerate(frames)]
    elif frames:
        place = names.first_of_program(frames)
        if place:
            lines.append(f"    in {place}")
    elif not first.runs and not first.runs_child:
        lines.append("    not started")
    text, code = first.creation_place
    if code:
        text = names.one(code)
    if text:
        lines.append(f"    created at {text}")
    return lines


class InfoGoroutines(gdb.Command):
    """List goroutines: info goroutines [-all] [-stacks] [REGEX]
Those that are alike (state, stack, places, name, labels) are one paragraph, the longest waits first.
-all: each by itself. -stacks: the whole stack of each paragraph. REGEX: only paragraphs in which it is found."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        each, whole = "-all" in words, "-stacks" in words
        rest = [w for w in words if w not in ("-all", "-stacks")]
        if len(rest) > 1 or any(w.startswith("-") for w in rest):
            raise gdb.GdbError("info goroutines [-all] [-stacks] [REGEX]")
        try:
            wanted = re.compile(rest[0]) if rest else None
        except re.error as e:
            raise gdb.GdbError(f"{rest[0]} is no regular expression: {e}")
        everyone = goroutines()
        frames_of, names = stack_reader(), Names()
        frames = {g.address: frames_of(g) for g in everyone}
        groups = [[g] for g in everyone] if each else dg.alike(everyone, lambda g: frames[g.address])
        write(f"{len(everyone)} goroutine{'s' if len(everyone) != 1 else ''}\n")
        for group in groups:
            text = "\n".join(describe(group, frames[group[0].address], names, whole))
            if wanted is None or wanted.search(text):
                write(text + "\n")


def without_placeholder(text):
    """A back-trace without frame #0, which is no frame of the goroutine."""
    lines = text.split("\n")
    if lines and lines[0].startswith("#0 "):
        end = next((i for i in range(1, len(lines)) if re.match(r"#\d+ ", lines[i])), len(lines))
        del lines[:end]
    return "\n".join(lines)


class GoroutineCommand(gdb.Command):
    """Look at a goroutine: goroutine N [COMMAND] | goroutine all COMMAND | goroutine none
With COMMAND (bt, frame 2, info locals, p x, ...): does it on the goroutine's stack. Without: selects that stack for the commands that
follow, until `goroutine none` or until the process goes on."""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        number, _, command = argument.strip().partition(" ")
        command = command.strip()
        if number == "none":
            leave()
        elif number == "all" and command:
            for g in goroutines():
                write("\n" + g.title + f" [{', '.join(g.remarks)}]\n")
                try:
                    self.on(g, command)
                except gdb.GdbError as error:
                    gdb.write(f"{error}\n")
        elif number.isdigit():
            g = next((g for g in goroutines() if g.id == int(number)), None)
            if g is None:
                raise gdb.GdbError(f"dunlin: there is no goroutine {number}, or no longer (info goroutines)")
            if command:
                self.on(g, command)
            else:
                leave()
                enter(g)
                write(f"{g.title} [{', '.join(g.remarks)}]\n")
                gdb.execute("frame")
        else:
            raise gdb.GdbError("goroutine N [COMMAND], goroutine all COMMAND, goroutine none (info goroutines tells N)")

    @staticmethod
    def on(g, command):
        back_trace = re.match(r"(bt|backtrace|where)\b", command)
        try:
            with On(g):
                text = gdb.execute(command, to_string=True)
                if back_trace and g.registers is not None:
                    text = without_placeholder(text)
                gdb.write(text if text.endswith("\n") or not text else text + "\n")
        except gdb.error as error:
            raise gdb.GdbError(str(error))


def leave(*_):
    if unwinder.registers is not None:
        unwinder.registers = None
        gdb.invalidate_cached_frames()


gdb.events.cont.connect(leave)
gdb.events.exited.connect(leave)
InfoGoroutines()
GoroutineCommand()
