"""Goroutines in lldb, of a live process or a core file: each that is not on a thread is a thread of its own.

settings set target.process.python-os-plugin-path .../share/dunlin/dunlin_lldb.py

when the process is attached to, or the core loaded (lldb 14 forgets it if that comes later). Then `thread list`, `thread backtrace all`, `thread
select`, `frame variable` and every program above lldb show them. The thread of goroutine 7 has the number 1000000007 and the
name "goroutine 7 [chan receive]". Goroutines that run are on the threads that there are.
"""

import os
import platform
import struct
import sys

import lldb

sys.path.insert(0, os.path.dirname(os.path.abspath(os.path.realpath(__file__))))
import dunlin_goroutines as dg  # noqa: E402

FIRST_NUMBER = 1_000_000_000  # beyond those of the kernel
AT_MOST = 20_000              # lldb asks for all of them at each stop

X86 = ["rax", "rbx", "rcx", "rdx", "rdi", "rsi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip", "rflags", "cs", "fs",
       "gs", "ss", "ds", "es"]
# Number in the frame data of unwinders, and what lldb calls it.
X86_NUMBERS = {"rax": 0, "rdx": 1, "rcx": 2, "rbx": 3, "rsi": 4, "rdi": 5, "rbp": 6, "rsp": 7, "r8": 8, "r9": 9, "r10": 10, "r11": 11, "r12": 12,
               "r13": 13, "r14": 14, "r15": 15, "rip": 16}
ARM = [f"x{i}" for i in range(29)] + ["fp", "lr", "sp", "pc", "cpsr"]
ARM_NUMBERS = {**{f"x{i}": i for i in range(29)}, "fp": 29, "lr": 30, "sp": 31, "pc": 32}
GENERIC = {"rip": "pc", "rsp": "sp", "rbp": "fp", "pc": "pc", "sp": "sp", "fp": "fp", "lr": "ra"}


class Memory:
    def __init__(self, process):
        self.process = process

    def read(self, address, size):
        if size == 0:
            return b""
        error = lldb.SBError()
        data = self.process.ReadMemory(address, size, error)
        if not error.Success() or data is None or len(data) != size:
            # A core has no read-only pages of files: those are in the files.
            target, error = self.process.GetTarget(), lldb.SBError()
            data = target.ReadMemory(target.ResolveLoadAddress(address), size, error)
        if not error.Success() or data is None or len(data) != size:
            raise dg.NoGoroutines(f"no memory at {address:#x}")
        return data


def registers(arm):
    """What lldb wants to know of them."""
    names, numbers = (ARM, ARM_NUMBERS) if arm else (X86, X86_NUMBERS)
    result = []
    for i, name in enumerate(names):
        one = {"name": name, "bitsize": 64, "offset": 8 * i, "encoding": "uint", "format": "hex", "set": 0}
        if name in numbers:
            one["gcc"] = one["dwarf"] = numbers[name]
        if name in GENERIC:
            one["generic"] = GENERIC[name]
        result.append(one)
    return {"sets": ["General Purpose Registers"], "registers": result}


class OperatingSystemPlugIn:
    def __init__(self, process):
        self.process = process if type(process) is lldb.SBProcess else None
        self.known, self.stop, self.threads = {}, None, []
        self.arm = process.GetTarget().GetTriple().startswith(("aarch64", "arm64")) if self.process else platform.machine() == "aarch64"

    def get_register_info(self):
        return registers(self.arm)

    def get_thread_info(self):
        if self.process is None:
            return []
        stop = self.process.GetStopID()
        if stop != self.stop:
            self.stop = stop
            self.known, self.threads = {}, []
            for reader in self._readers():
                try:
                    goroutines = reader.goroutines()
                except dg.NoGoroutines as error:
                    print(f"dunlin: {error}")
                    continue
                for g in goroutines:
                    if g.registers is not None and len(self.threads) < AT_MOST:
                        self._add(g)
        return self.threads

    def get_register_data(self, number):
        """The registers as lldb asked for them, one after the other. What a goroutine does not keep is 0."""
        g = self.known.get(number)
        if g is None:
            return None
        sp, fp, pc = g.registers
        values = {"sp": sp, "fp": fp, "pc": pc} if self.arm else {"rsp": sp, "rbp": fp, "rip": pc}
        names = ARM if self.arm else X86
        return struct.pack(f"<{len(names)}Q", *(values.get(name, 0) for name in names))

    def create_thread(self, number, context):
        return None

    def _readers(self):
        target, found = self.process.GetTarget(), []
        for module in target.module_iter():
            section = module.FindSection(dg.NOTE_SECTION)
            if not section.IsValid():
                continue
            address = section.GetLoadAddress(target)
            if address in (0, lldb.LLDB_INVALID_ADDRESS):
                continue
            try:
                found.append(dg.Reader(Memory(self.process), address))
            except dg.NoGoroutines as error:
                if "no memory" not in str(error):  # not loaded yet
                    print(f"dunlin: {error}")
        return found

    def _add(self, g):
        number = FIRST_NUMBER + g.id % FIRST_NUMBER
        self.known[number] = g
        self.threads.append({"tid": number, "name": f"{g.title} [{g.state}]", "queue": g.wait_place or "goroutines",
                             "state": "stopped", "stop_reason": "none"})
