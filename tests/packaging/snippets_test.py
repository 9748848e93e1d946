"""Every piece of code in README, CONTRIBUTING, docs/*.md and the docstrings of the headers compiles, and runs.

Usage: snippets_test.py [--around PROGRAM] SOURCE SCRATCH COMPILER LAUNCHER LIBRARY...   LIBRARY...: what the linker is given

All become one translation unit: each fragment a function, with what stands around it in FRAMES; each program one too. A piece
without a frame is a fault. What a program prints is what stands in the block after it. PROGRAM (dunlin_cluster) starts a server of NATS for the
pieces that need one (NATS): without it they are left out, and where it finds no nats-server they are compiled only.
"""

import glob
import os
import re
import subprocess
import sys

# How a piece begins -> what stands before it, what after it, and what in it is replaced. Fragments run in goroutines.
FRAMES = {
    # README.md
    "dunlin::chan<std::string> lines(16);": (
        "dunlin::chan<std::string> replies(1); const std::string answer = \"42\";",
        "check(replies.recv() == \"42\");", {}),
    "for (T v : c.until(ctx))": (
        "using T = int; dunlin::chan<T> c(2); c.send(1); c.send(2); c.close(); const dunlin::context ctx; int sum = 0;",
        "sum += v; check(sum == 3);", {}),
    "sleep_for(1s, ctx)": ("const dunlin::context ctx; dunlin::", ";", {"1s": "1ms"}),
    "auto listener = dunlin::net::listen(\"tcp\", \":8080\");": (
        # The server's loop has no end: it stays behind when the clients have had their replies.
        "const std::string address = free_address(); auto clients = dunlin::spawn([=] { be_clients(address); });"
        "dunlin::go([address] {", "}); clients.get();", {'":8080"': "address", "30s": "300ms"}),
    "run_options{.stack_size = dunlin::dense_stack_size}": ("auto o = dunlin::", "; check(o.stack_size == 239 * 1024);", {}),
    "runtime::stats().waits_while_idle": ("const auto waits = dunlin::", "; check(waits.quantile_ns(0.5) <= waits.quantile_ns(1));", {}),
    "run_options{.at_end = dunlin::leftovers::wait}": ("auto o = dunlin::", "; check(o.at_end != dunlin::leftovers::stop);", {}),
    # CONTRIBUTING.md
    "const ssize_t size = dunlin::blocking(": ("char place[1];", "check(size == 1);", {}),
    # docs/debugging.md
    "dunlin::runtime::set_block_profile_rate(10us);": (
        "", "check(block && mutex && block.tellp() > 0); block.close(); mutex.close();"
        "std::remove(\"block.pb\"); std::remove(\"mutex.pb\");", {}),
    "dunlin::trace::start_recorder({.file": (
        "", "check(request.id() != 0 && dunlin::trace::running());", {}),
    "dunlin::runtime::start_cpu_profile();": (
        "", "check(cpu && cpu.tellp() > 0); cpu.close(); std::remove(\"cpu.pb\");", {}),
    "const dunlin::testing::no_leaks guard(": ("\n#define ADD_FAILURE() std::cerr\n", "", {}),
    "const dunlin::debug::server page =": (
        "", "check(page.url() != \"\");", {"127.0.0.1:6060": "127.0.0.1:0"}),
    # docs/libraries.md
    "dunlin::os_thread_lock wired;": ("", "", {}),
    # docs/cluster.md
    "auto cluster = dunlin::nats::connect(\"nats://a:4222": (
        "int indexed = 0; const auto index = [&](const std::string&) { ++indexed; };",
        "check(jobs.size().messages == 0); cluster.close();",
        {'"nats://a:4222,nats://b:4222,nats://c:4222"': "std::getenv(\"NATS_URL\")", ".replicas = 3, ": "",
         "d.done();  ": "d.done(); if (indexed == 2) break;"}),
    "struct order {": (None, "", {}),
    "const dunlin::signal_context ctx({SIGTERM, SIGINT});": (
        "auto cluster = dunlin::nats::connect(std::getenv(\"NATS_URL\")); auto jobs = cluster.queue<std::string>(\"terminated\");"
        "jobs.send(\"last\"); static int indexed = 0; static const auto index = [](const std::string&) { ++indexed; kill(getpid(), SIGTERM); };",
        "check(indexed == 1);", {}),
    # docstrings
    "for (std::unique_ptr<X> p : c)": (
        "using X = int; dunlin::chan<std::unique_ptr<X>> c(1); c.send(std::make_unique<X>(7)); c.close(); int sum = 0;",
        "{ sum += *p; }\ncheck(sum == 7);", {}),
    "for (T&& v : c)": (
        "using T = std::unique_ptr<int>; dunlin::chan<T> c(1); c.send(std::make_unique<int>(7)); c.close(); int sum = 0;",
        "{ sum += *v; }\ncheck(sum == 7);", {}),
    "auto [ctx, cancel] = with_cancel(parent);": (
        "using namespace dunlin; const context parent = context::background();", "cancel(); check(ctx.is_done());", {}),
    "auto ctx = with_cancel(parent); ctx.cancel();": (
        "using namespace dunlin; const context parent = context::background();", "check(ctx.is_done());", {}),
    "auto [r, w] = dunlin::fs::pipe();": ("", "w.write_all(\"x\"); char c; check(r.read_some(&c, 1) == 1);", {}),
    "run_options{.report_leaks = true}": ("auto o = dunlin::", "; check(o.report_leaks);", {}),
    "dunlin::testing::no_leaks guard(": ("\n#define ADD_FAILURE() std::cerr\n", "", {}),
    "go_options{.name = \"reader\"}": ("auto o = dunlin::", "; check(o.name == \"reader\");", {}),
    "process_environment{{\"HOME\", \"/\"}}": ("const auto e = dunlin::", "; check(!e.empty());", {}),
    "select(on_send(c, std::move(v)), ...)": (
        "using namespace dunlin; chan<std::string> c; std::string v = \"back\";", "; check(v == \"back\");", {"...": "otherwise()"}),
    "auto s = on_send(c, std::move(v))": (
        "using namespace dunlin; chan<std::string> c; std::string v = \"kept\";", "; check(s.value() == \"kept\");", {}),
    "for (int s : signal_channel({SIGINT, SIGTERM}))": (
        "using dunlin::signal_channel; dunlin::go([] { dunlin::sleep_for(50ms); kill(getpid(), SIGTERM); });",
        "{ check(s == SIGTERM); break; }", {}),
    "ec == std::errc::timed_out": (
        "const auto ec = std::make_error_code(std::errc::timed_out); const bool is_so = ", "; check(is_so);", {}),
    "ec == errc::peer_silent": (
        "using namespace dunlin; const std::error_code ec = errc::peer_silent; const bool is_so = ",
        "; check(is_so && ec == std::errc::timed_out);", {}),
    "dunlin::with_stop_token(ctx, token)": (
        "const dunlin::context ctx = dunlin::context::background(); std::stop_source source; const auto token = source.get_token();"
        "const auto both = ", "; source.request_stop(); check(both.is_done());", {}),
    "ec == tls::errc::certificate_rejected": (
        "using namespace dunlin; const std::error_code ec = make_error_code(tls::errc::certificate_rejected); const bool is_so = ",
        "; check(is_so);", {}),
    "asio_stream s(connection)": (
        "using namespace dunlin; auto [connection, other] = net::stream_pair();",
        "; static_assert(std::is_same_v<decltype(s), asio_stream<net::stream&>>);", {}),
    "asio_stream s(net::dial(...))": (
        "using namespace dunlin; const auto listener = net::listen(\"tcp\", \"127.0.0.1:0\");",
        "; static_assert(std::is_same_v<decltype(s), asio_stream<net::stream>>);",
        {"...": "\"tcp\", listener.local_address().to_string()"}),
    "beast::get_lowest_layer(ws).set_deadline(5s)": (
        "namespace beast = boost::beast; auto [connection, other] = dunlin::net::stream_pair(); dunlin::asio_stream ws(connection);",
        "; char c; ws.stream().set_deadline(1ns); std::error_code ec; check(connection.read_some(&c, 1, ec) == 0 && ec);", {}),
    "catch (const std::exception& e) { cancel(e); }": (
        "auto [ctx, cancel] = dunlin::with_cancel({}); try { throw std::out_of_range(\"far\"); } ",
        " try { std::rethrow_exception(ctx.cause()); } catch (const std::out_of_range&) { return; } check(false);", {}),
    "while (!ready()) n.wait();": (
        "dunlin::notify n; std::atomic<bool> is{false}; const auto ready = [&] { return is.load(); };"
        "dunlin::go([&] { is = true; n.notify_one(); });", "check(ready());", {}),
    "select({on_recv(a), on_send(b, v)})": (
        "using namespace dunlin; chan<int> a, b(1); const int v = 1;", "; check(b.recv() == 1);", {}),
    "ctx = group.context()": ("dunlin::task_group group; const auto ", "; group.cancel(); check(ctx.is_done());", {}),
}
# Of Boost.JSON, which a program may make itself: pieces that use it are left out where it is not. Likewise those of Asio, Beast and TLS.
JSON = "boost/json/src.hpp"
ASIO, BEAST = "boost/asio/error.hpp", "boost/beast/core/stream_traits.hpp"
OPTIONAL = {"include/dunlin/asio.hpp": (f"<{ASIO}>", f"<{BEAST}>", "<dunlin/asio.hpp>"), "include/dunlin/tls.hpp": ("<dunlin/tls.hpp>",)}
# Those that need dunlin::nats, and a server when they run.
NATS = ("auto cluster = dunlin::nats::connect(", "struct order {", "const dunlin::signal_context ctx({SIGTERM, SIGINT});")
# Not code: settings, calls that are only named; and what is not for programs.
NOT_CODE = re.compile(r"[A-Z_]+=.*|\w+\(\w*\)|[\w:.]+\(\)")
ELSEWHERE = ("include/dunlin/detail/",)

PREAMBLE = r"""
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sys/socket.h>
#include <unistd.h>
#include <dunlin/debug.hpp>
#include <dunlin/dunlin.hpp>
#include <dunlin/trace.hpp>
#include <dunlin/testing.hpp>
using namespace std::chrono_literals;
static void check_that(bool so, const char* what) {
    if (so) return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::_Exit(1);
}
#define check(...) check_that(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)
static std::string free_address() { return dunlin::net::listen("tcp", "127.0.0.1:0").local_address().to_string(); }
static dunlin::net::stream reach(const std::string& address) {
    for (;;) {
        std::error_code not_yet;
        auto s = dunlin::net::dial("tcp", address, 5s, not_yet);
        if (!not_yet) return s;
        dunlin::sleep_for(10ms);
    }
}
static void expect_echo(const std::string& address) {
    auto s = reach(address);
    char reply[5];
    s.write_all("hello", 5);
    s.read_exactly(reply);
    check(std::memcmp(reply, "hello", 5) == 0);
}
// One that resets its connection, one that says nothing: the server is there for the next one.
[[maybe_unused]] static void be_clients(const std::string& address) {
    expect_echo(address);
    {
        auto s = reach(address);
        s.write_all("x", 1);
        const linger reset{1, 0};
        setsockopt(s.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    expect_echo(address);
    auto silent = reach(address);
    char nothing;
    std::error_code ec;
    check(silent.read_some(&nothing, 1, ec) == 0);
    expect_echo(address);
}
"""


def docstrings(text):
    lines = []
    for line in text.split("\n"):
        found = re.match(r"\s*///<?\s?(.*)|.*///<\s?(.*)", line)
        lines.append((found[1] or found[2] or "") if found else "")
    return "\n".join(lines)


def pieces(source):
    """(file, code, what it prints or None)"""
    markdown = ["README.md", "CONTRIBUTING.md"] + sorted(os.path.relpath(p, source) for p in glob.glob(os.path.join(source, "docs", "*.md")))
    headers = sorted(os.path.relpath(p, source) for p in glob.glob(os.path.join(source, "include", "**", "*.hpp"), recursive=True))
    for name in markdown + headers:
        with open(os.path.join(source, name), encoding="utf-8") as file:
            text = file.read()
        if name.endswith(".md"):
            fences = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, flags=re.M | re.S)
            for i, (language, code) in enumerate(fences):
                if language == "cpp":
                    prints = fences[i + 1][1] if i + 1 < len(fences) and fences[i + 1][0] == "" and "main()" in code else None
                    yield name, code, prints
            if name != "README.md":
                continue
            text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
        elif name.startswith(ELSEWHERE):
            continue
        else:
            text = docstrings(text)
        for span in re.findall(r"`([^`]+)`", text):
            span = " ".join(span.split())
            if re.search(r"[({;]|[^T]=", span) and not NOT_CODE.fullmatch(span):
                if re.match(r"[\w:<>]+ ?[\w ]*[({=]|auto \[|for ", span) and not span.startswith("BUILD_"):
                    yield name, span, None


def main():
    arguments = sys.argv[1:]
    around = arguments[1] if arguments[0] == "--around" else None
    source, scratch, compiler, launcher, *libraries = arguments[2:] if around else arguments
    boost = next((p for p in ("/usr/include", os.path.join(source, "build/boost/usr/include")) if os.path.exists(os.path.join(p, JSON))), None)
    missing = [] if os.path.exists(os.path.join(boost or "/usr/include", BEAST)) else ["include/dunlin/asio.hpp"]
    missing += [] if any("dunlin_tls" in name for name in libraries) else ["include/dunlin/tls.hpp"]
    os.makedirs(scratch, exist_ok=True)
    includes, bodies, runs, printed, faults, used, optional = [], [], [], [], 0, set(), set()
    for number, (name, code, prints) in enumerate(pieces(source)):
        if re.search(r"^int main\(", code, re.M):
            includes += re.findall(r"^#include.*\n", code, flags=re.M)
            body = re.sub(r"^#include.*\n", "", code, flags=re.M).replace("int main()", "static int program()")
            bodies.append(f"namespace piece_{number} {{ // {name}\n{body}}}\n")
            runs.append(f"    check(piece_{number}::program() == 0);")
            printed.append(prints or "")
            continue
        frame = next((f for begin, f in FRAMES.items() if code.strip().startswith(begin)), None)
        if frame is None:
            print(f"{name}: no frame (FRAMES in this file) for: {code.strip().splitlines()[0]}")
            faults += 1
            continue
        used.add(next(begin for begin in FRAMES if code.strip().startswith(begin)))
        needs_server = code.strip().startswith(NATS)
        if (needs_server and not around) or ("boost::json" in code and not boost) or name in missing:
            continue
        optional.update(OPTIONAL.get(name, ()))
        before, after, replaced = frame
        for old, new in replaced.items():
            if old not in code:
                print(f"{name}: {old} is not in: {code.strip().splitlines()[0]}")
                faults += 1
            code = code.replace(old, new)
        if before is None:  # not a statement
            bodies.append(f"// {name}\n{code}\n")
            continue
        bodies.append(f"static void piece_{number}() {{ // {name}\n{before}\n{code}\n{after}\n}}\n")
        runs.append("    if (std::getenv(\"NATS_URL\") != nullptr)" if needs_server else "")
        runs.append(f"    dunlin::run([] {{ piece_{number}(); }});")
    for begin in sorted(set(FRAMES) - used):
        print(f"a frame that nothing stands in: {begin}")
        faults += 1
    if faults or len(bodies) < 10:
        print(f"{len(bodies)} pieces, {faults} faults")
        return 1

    program = os.path.join(scratch, "snippets")
    with open(program + ".cpp", "w", encoding="utf-8") as file:
        file.write("".join(includes) + ("#include <dunlin/nats.hpp>\n" if around else "") + (f"#include <{JSON}>\n" if boost else "") + "".join(f"#include {o}\n" for o in sorted(optional)) + PREAMBLE + "".join(bodies) + "int main() {\n" + "\n".join(runs) + "\n}\n")
    command = ([launcher] if launcher else []) + [compiler, "-std=c++20", "-Wall", "-Wextra", "-Wno-unused", "-I" + os.path.join(source, "include")]
    command += ["-isystem", boost] if boost and boost != "/usr/include" else []
    subprocess.run(command + ["-c", program + ".cpp", "-o", program + ".o"], check=True)
    subprocess.run([compiler, program + ".o", "-o", program, *libraries, "-pthread", "-ldl"], check=True)
    done = subprocess.run([around, "--around", program] if around else [program], stdout=subprocess.PIPE, text=True, timeout=100)
    if around and done.returncode == 77:
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=100)
    print(f"{len(bodies)} pieces, status {done.returncode}, printed:\n{done.stdout}", end="")
    as_expected = without_sleepers(done.stdout) == without_sleepers("".join(printed))
    if not as_expected:
        print("expected:\n" + "".join(printed))
    return 0 if done.returncode == 0 and as_expected else 1


def without_sleepers(text):
    """The README's first program counts goroutines that sleep for a second: all 100000 unless the machine was kept busy for as long."""
    return re.sub(r"\b[1-9]\d{0,5} goroutines sleep", "goroutines sleep", text)


if __name__ == "__main__":
    sys.exit(main())
