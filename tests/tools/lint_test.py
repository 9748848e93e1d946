"""tools/lint must see what it is there to see, and nothing else. Run by ctest as tools/lint."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOOL = os.path.join(ROOT, "tools", "lint")


def check(files):
    """What the tool says of a tree of these files: (exit status, its lines)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        result = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)
        return result.returncode, (result.stdout + result.stderr).splitlines()


def unnamed(place, word):
    return f"{place}: '{word}' in a comment: name the role (owner, taker, waker, waiter, caller ...)"


class Pairings(unittest.TestCase):
    SIDES = ("void give() {\n    word.store(1, release);  // pairs with the acquire in\n                             // take(): it sees all\n}\n"
             "void take() { while (word.load(std::memory_order_%s) == 0) {} }\nvoid other() { word.load(std::memory_order_acquire); }\n")

    def test_the_other_side_is_there(self):
        self.assertEqual(check({"src/a.cpp": self.SIDES % "acquire"}), (0, []))

    def test_a_weakened_other_side_is_found(self):
        self.assertEqual(check({"src/a.cpp": self.SIDES % "relaxed"}),
                         (1, ["src/a.cpp:2: 'pairs with the acquire in take()': no acquire is there"]))

    def test_each_of_several_functions_must_be_the_other_side(self):
        both = self.SIDES.replace("take():", "other() and take():")
        self.assertEqual(check({"src/a.cpp": both % "acquire"}), (0, []))
        self.assertEqual(check({"src/a.cpp": both % "relaxed"}),
                         (1, ["src/a.cpp:2: 'pairs with the acquire in other() and take()': no acquire is there"]))

    def test_the_other_side_is_on_the_same_variable(self):
        fault = "src/a.cpp:2: 'pairs with the acquire in take()': no acquire there is of word"
        taker = self.SIDES % "acquire"
        self.assertEqual(check({"src/a.cpp": taker.replace("while (word.load", "while (m->other.load")}), (1, [fault]))
        relaxed = taker.replace("while (word.load(", "word.load(std::memory_order_relaxed); while (m->other.load(")
        self.assertEqual(check({"src/a.cpp": relaxed}), (1, [fault]))
        named = taker.replace("take():", "take() of `other`:").replace("while (word.load", "while (m->other.load")
        self.assertEqual(check({"src/a.cpp": named}), (0, []))
        alias = taker.replace("{ while (word.load", "{ auto& w = word; while (w.load")
        self.assertEqual(check({"src/a.cpp": alias}), (0, []))

    def test_a_step_of_a_protocol_is_looked_up_by_its_mark(self):
        head = "// The protocol\n//   T1  store\n//   L1: load\n"
        give = "void give() { word.store(1, release); }  // T1, pairs with the acquire of L1\n"
        take = "void take() { word.load(std::memory_order_%s); }  // L1\n"
        self.assertEqual(check({"src/a.cpp": head + give + take % "acquire"}), (0, []))
        self.assertEqual(check({"src/a.cpp": head + give + take % "relaxed"}),
                         (1, ["src/a.cpp:1: 'pairs with the acquire of L1': no acquire is there"]))


class Roles(unittest.TestCase):
    def expect(self, files, *faults):
        self.assertEqual(check(files), (1 if faults else 0, list(faults)))

    def test_a_word_that_names_no_role_is_found_in_each_kind_of_comment(self):
        self.expect({"src/a.cpp": "// Whoever comes\nint a;  // he waits\n/* one\n   for nobody */\n"},
                    unnamed("src/a.cpp:1", "Whoever"), unnamed("src/a.cpp:2", "he"), unnamed("src/a.cpp:4", "nobody"))

    def test_public_headers_too(self):
        self.expect({"include/dunlin/a.hpp": "#pragma once\n#include <dunlin/config.hpp>\n/// Wakes somebody.\n"},
                    unnamed("include/dunlin/a.hpp:3", "somebody"))

    def test_roles_relative_clauses_and_longer_names_are_allowed(self):
        self.expect({"src/a.cpp": "// The waker, whose waiter is one of those who wait: see whose_turn and the rest\nint whose_turn;\n"})

    def test_a_name_in_code_that_names_no_role_is_found(self):
        self.expect({"src/a.cpp": "int a;\nbool somebody_waits;\n", "tests/a.cpp": "bool somebody_waits;\n"},
                    "src/a.cpp:2: 'somebody_waits' names no role (owner, taker, waker, waiter, caller ...)")

    def test_code_and_quoted_code_are_left_alone(self):
        self.expect({"src/a.cpp": "const char* text = \"// nobody\";\nchar c = '\"';  // `somebody`\nint n = 1'000;  // fine\n"
                                  "auto r = R\"(// nobody)\";\n", "tests/a.cpp": "int somebody;\n"})

    def test_comments_of_tests_may_use_them(self):
        self.expect({"tests/a.cpp": "// nobody\n"})

    def test_names_of_tests_and_suites_name_roles(self):
        wrong = "names no role (owner, taker, waker, waiter, caller ...)"
        self.expect({"tests/a.cpp": "TEST(Lock, WhoWaitsGetsIt) {}\nTEST_F(Lock, TakesNobodysPlace) {}\n"
                                    "TEST_P(Lock,\n    GoesToWhoeverWaits) {}\nTYPED_TEST(Everybody, Waits) {}\n"
                                    "TEST(nobody_test, ManyWho) {}\n"},
                    f"tests/a.cpp:1: 'WhoWaitsGetsIt' {wrong}", f"tests/a.cpp:2: 'TakesNobodysPlace' {wrong}",
                    f"tests/a.cpp:4: 'GoesToWhoeverWaits' {wrong}", f"tests/a.cpp:5: 'Everybody' {wrong}",
                    f"tests/a.cpp:6: 'nobody_test' {wrong}", f"tests/a.cpp:6: 'ManyWho' {wrong}")

    def test_names_of_tests_may_speak_of_a_thing_and_longer_words_are_allowed(self):
        self.expect({"tests/a.cpp": "TEST(Heap, ATimerWhoseValueWasReceived) {}\nTEST(Heap, TheWholeHistory) {}\n"
                                    "// TEST(Heap, WhoWaits)\nint WhoWaits;\n"})


def no_name(place, name):
    return f"{place}: '{name}' in a comment: there is no such name (one of others: tools/foreign_names.txt)"


def no_step(place, label):
    return f"{place}: '{label}' in a comment: neither this file, nor one that it includes or names, defines such a step"


class Named(unittest.TestCase):
    """What a comment names is there."""

    def expect(self, files, *faults):
        self.assertEqual(check(files), (1 if faults else 0, list(faults)))

    def test_a_function_that_is_gone_is_found(self):
        self.expect({"src/a.cpp": "// As repair_call() and whose_turn do; pairs with what gone() does, and `here`.\nint here;\n"},
                    no_name("src/a.cpp:1", "repair_call"), no_name("src/a.cpp:1", "whose_turn"), no_name("src/a.cpp:1", "gone"))

    def test_what_code_has_anywhere_is_there_and_comments_do_not_count(self):
        self.expect({"src/a.cpp": "// by_b(), by_c and two by_cs\n", "src/b.cpp": "void by_b();\n", "tests/c.cpp": "int by_c;\n"})
        self.expect({"src/a.cpp": "// only_said\n", "src/b.cpp": "// only_said\n"}, no_name("src/a.cpp:1", "only_said"), no_name("src/b.cpp:1", "only_said"))

    def test_names_of_others_are_listed(self):
        self.expect({"src/a.cpp": "// io_uring\n", "tools/foreign_names.txt": "# the kernel\nio_uring\n"})

    def test_a_file_that_is_gone_is_found_and_sources_of_go_are_not_asked_for(self):
        self.expect({"src/a.cpp": "// b.cpp, tests/t.cpp, c.h, runtime/proc.go\n", "src/x/b.cpp": "\n", "tests/t.cpp": "\n"},
                    "src/a.cpp:1: 'c.h' in a comment: there is no such file")

    def test_a_step_is_defined_by_a_head_that_the_file_can_see(self):
        head = "#pragma once\n// Protocol   R1  look      S1, S2  publish\n//            H1: one at a time\n"
        self.expect({"src/h.h": head, "src/a.cpp": '#include "h.h"\n// R1, S2, H1\n', "src/b.cpp": "// R1 (h.h)\n"})
        self.expect({"src/h.h": head, "src/a.cpp": '#include "h.h"\n// R7 and W1\n', "src/b.cpp": "// R1\n"},
                    no_step("src/a.cpp:2", "R7"), no_step("src/a.cpp:2", "W1"), no_step("src/b.cpp:1", "R1"))

    def test_a_step_that_is_named_with_its_file_is_defined_there(self):
        heads = {"src/h.h": "#pragma once\n//   R1  look\n//   R2  take\n", "src/k.h": "#pragma once\n//   S1  publish\n"}
        code = '#include "h.h"\n#include "k.h"\n'
        self.expect({**heads, "src/a.cpp": code + "// R1 and R2 of h.h, (k.h, S1)\n"})
        self.expect({**heads, "src/a.cpp": code + "// (h.h, S1)\n", "src/b.cpp": code + "// R1 to R2 of\n// k.h\n"},
                    "src/a.cpp:3: 'h.h, S1' in a comment: that file defines no step S1",
                    "src/b.cpp:3: 'R1 to R2 of k.h' in a comment: that file defines no step R1",
                    "src/b.cpp:3: 'R1 to R2 of k.h' in a comment: that file defines no step R2")


class Atomics(unittest.TestCase):
    def test_the_runtime_uses_its_own(self):
        fault = "platform::atomic, of <dunlin/detail/atomic.hpp>"
        code = "#include <atomic>\nstd::atomic<int> a;  // std::atomic<int>\nvoid f() { std::atomic_signal_fence(std::memory_order_seq_cst); }\n"
        self.assertEqual(check({"src/a.cpp": code, "tests/a.cpp": code, "src/explorer/a.cpp": code}),
                         (1, [f"src/a.cpp:1: #include <atomic>: {fault}", f"src/a.cpp:2: std::atomic: {fault}"]))


class Clocks(unittest.TestCase):
    def test_waits_in_the_kernel_are_by_its_clock(self):
        fault = "now_ns(): a wait in the kernel is by real_now_ns()"
        wait = "void f() {\n    futex_wait_until(word, 0,\n        platform::now_ns() + 5);\n}\n"
        other = "std::int64_t g() { return platform::now_ns(); }\n"
        right = "void h() { futex_wait_until(word, 0, real_now_ns()); s->now_ns(); }\n"
        self.assertEqual(check({"src/a.cpp": wait + other + right, "src/platform/b.cpp": other + right, "tests/c.cpp": wait}),
                         (1, [f"src/a.cpp:3: {fault}", f"src/platform/b.cpp:1: {fault}"]))


CONFIG = "#pragma once\n#define DUNLIN_VERSION_MAJOR 1\n#define DUNLIN_VERSION_MINOR 2\n#define DUNLIN_ABI_NAME \"v1_2\"\n"


class Versions(unittest.TestCase):
    def expect(self, files, *faults):
        self.assertEqual(check(files), (1 if faults else 0, list(faults)))

    def test_code_is_in_the_namespace_of_the_version(self):
        self.expect({"include/dunlin/config.hpp": CONFIG, "src/a.cpp": "namespace dunlin::inline v1_2 {\n}\nnamespace dunlin::inline v1_2::io {\n}\n"})

    def test_what_is_in_none_or_another_is_found(self):
        self.expect({"include/dunlin/config.hpp": CONFIG, "src/a.cpp": "\nnamespace dunlin::io {\n}\n", "src/b.cpp": "namespace dunlin::inline v1_1 {\n}\n"},
                    "src/a.cpp:2: 'namespace dunlin::io {': write namespace dunlin::inline v1_2",
                    "src/b.cpp:1: 'namespace dunlin::inline v1_1 {': write namespace dunlin::inline v1_2")

    def test_its_name_follows_the_version(self):
        self.expect({"include/dunlin/config.hpp": CONFIG.replace("MINOR 2", "MINOR 3")},
                    'include/dunlin/config.hpp:1: DUNLIN_ABI_NAME must be "v1_3", as the version is')


class Decisions(unittest.TestCase):
    """A decision has the template's headings, names files that exist, and stands in the index."""

    TEXT = ("# 001: What\n\n## Problem\n\n## Options\n\n## Choice\n\n## What would change our mind\n\n"
            "## Where\n\n`src/a.h`.\n")
    INDEX = "# Decisions\n\n* [001](001-a.md) What\n"

    def expect(self, text, index, *faults):
        files = {"docs/decisions/001-a.md": text, "docs/decisions/README.md": index, "src/a.h": "#pragma once\n"}
        self.assertEqual(check(files), (1 if faults else 0, [f"docs/decisions/001-a.md:{f}" for f in faults]))

    def test_one_of_the_template_that_stands_in_the_index_is_right(self):
        self.expect(self.TEXT, self.INDEX)

    def test_another_heading_and_an_order_of_its_own_are_found(self):
        wanted = "the template's are Problem, Options, Choice, What would change our mind, Where"
        self.expect(self.TEXT.replace("## Options", "## Measured"), self.INDEX,
                    f"1: its headings are Problem, Measured, Choice, What would change our mind, Where; {wanted}")
        self.expect("# 001: What\n", self.INDEX, f"1: its headings are missing; {wanted}")

    def test_a_number_that_is_not_the_file_s_is_found(self):
        self.expect(self.TEXT.replace("001", "002"), self.INDEX, "1: a decision begins with '# 001: ' and what was decided")

    def test_one_without_its_line_in_the_index_is_found(self):
        self.expect(self.TEXT, "# Decisions\n", "1: has no line, or more than one, in docs/decisions/README.md")

    def test_a_file_that_is_gone_is_found(self):
        self.expect(self.TEXT.replace("src/a.h", "src/b.h"), self.INDEX, "13: 'src/b.h': there is no such file")

    def test_a_link_that_leads_nowhere_is_found_and_code_is_left_alone(self):
        self.assertEqual(check({"docs/a.md": "[a](a.md#x) [b](b.md)\n`[c](c.md)` [d](https://d.example/e)\n"}),
                         (1, ["docs/a.md:1: a link to 'b.md': there is no such file"]))


class CatchAll(unittest.TestCase):
    HEAD = "#pragma once\n#include <dunlin/config.hpp>\nvoid f() try {\n} catch (...) {\n    %s\n}\n"

    def test_one_that_ends_a_forced_unwind_is_found_in_a_header(self):
        fault = "include/dunlin/a.hpp:4: a catch (...) that ends what is no exception: caught(), of <dunlin/detail/caught.hpp>"
        for body in ("error = std::current_exception();", "// throw;", 'log("throw");'):
            self.assertEqual(check({"include/dunlin/a.hpp": self.HEAD % body}), (1, [fault]))
        for body in ("throw;", "error = caught();", "detail::keep_caught(error);"):
            self.assertEqual(check({"include/dunlin/a.hpp": self.HEAD % body}), (0, []))
        self.assertEqual(check({"src/a.cpp": "void f() try {\n} catch (...) {\n}\n"}), (0, []))


class Promises(unittest.TestCase):
    """Each test that docs/promises.md and docs/proofs.md name exists."""

    TESTS = {"tests/chan/a_test.cpp": "TEST_P(Chan, Works) {}\n    {\"a_row\", 1},\n", "tests/sim/a_cases.cpp": "{\"a/one\", 1}\n",
             "tests/tools/b_test.py": "def test_this():\n    pass\n"}

    def expect(self, row, *faults):
        table = "| promise | shown by | not shown |\n|---|---|---|\n"
        self.assertEqual(check({**self.TESTS, "docs/promises.md": table + row}),
                         (1 if faults else 0, [f"docs/promises.md:3: {f}" for f in faults]))

    def test_tests_rows_of_tables_cases_and_those_in_python_are_found(self):
        self.expect("| `x` | `chan/a`: `Chan.Works`, `Works`, `a_row`; `sim/a_cases`: `a/one`; `tools/b_test.py`: `test_this` | |\n")

    def test_one_that_is_gone_is_found(self):
        self.expect("| x | `chan/a`: `Chan.Fails` | |\n", "'Chan.Fails': tests/chan/a has no such test")
        self.expect("| x | `sim/a_cases`: `a/two` | |\n", "'a/two': tests/sim/a_cases has no such test")
        self.expect("| x | `chan/b`: `Chan.Works` | |\n", "'chan/b': there is no such file of tests", "names no test")

    def test_a_promise_without_a_test_is_found(self):
        self.expect("| x | something | |\n", "names no test")


def mend(path, text):
    """The text of a file after --fix."""
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([sys.executable, TOOL, "--fix", root], capture_output=True, check=True)
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()


class Width(unittest.TestCase):
    """Comments and paragraphs have 120 columns; --fix breaks what is wider."""

    LONG = " ".join(["word"] * 24)  # 119 columns

    def test_comments_and_paragraphs_that_are_too_wide_are_found_and_code_tables_and_addresses_are_not(self):
        status, lines = check({"src/a.cpp": f"// {self.LONG}\nint a;  // {self.LONG}\nauto b = \"{self.LONG} // 234567\";\n// https://e/{'x' * 120}\n",
                               "docs/a.md": f"{self.LONG} {self.LONG}\n\n| {self.LONG} | word |\n"})
        self.assertEqual((status, lines), (1, ["src/a.cpp:1: a comment wider than 120 columns: tools/lint --fix",
                                               "src/a.cpp:2: a comment wider than 120 columns: tools/lint --fix",
                                               "docs/a.md:1: a paragraph wider than 120 columns: tools/lint --fix"]))

    def test_code_is_as_wide_unless_a_literal_or_a_macro_makes_it_so(self):
        code = "int a = " + " + ".join(["123456"] * 13) + ";\n"
        status, lines = check({"src/a.cpp": code + code.replace("123456", '"3456"') + "#define A \\\n" + code[:-1] + " \\\n\n"})
        self.assertEqual((status, lines), (1, ["src/a.cpp:1: 123 columns, 120 are allowed"]))

    def test_a_comment_is_broken_and_goes_on_in_the_next_line(self):
        self.assertEqual(mend("src/a.cpp", f"// {self.LONG}\n// more\nint a;\n"), f"// {self.LONG[:-5]}\n// word more\nint a;\n")

    def test_the_indentation_of_a_head_is_kept(self):
        self.assertEqual(mend("src/a.cpp", f"// Problem    {self.LONG}\n"), f"// Problem    {self.LONG[:-15]}\n//            word word word\n")

    def test_a_comment_behind_code_goes_above_it_with_the_lines_that_belong_to_it(self):
        self.assertEqual(mend("src/a.cpp", f"    int a;  // {self.LONG}\n            // more\n"),
                         f"    // {self.LONG[:-10]}\n    // word word more\n    int a;\n")
        self.assertEqual(mend("src/a.cpp", f"    int a;  ///< {self.LONG}\n"),
                         f"    /// {self.LONG[:-10]}\n    /// word word\n    int a;\n")

    def test_literals_and_continued_lines_are_left_alone(self):
        text = f"auto a = R\"(\n// {self.LONG}\n)\";\n#define A 1  // {self.LONG} \\\n"
        self.assertEqual(mend("src/a.cpp", text), text)

    def test_paragraphs_and_items_are_broken_and_code_is_not(self):
        self.assertEqual(mend("docs/a.md", f"* {self.LONG}\n\n```\n{self.LONG} word\n```\n\n    {self.LONG}\n"),
                         f"* {self.LONG[:-5]}\n  word\n\n```\n{self.LONG} word\n```\n\n    {self.LONG}\n")
        hidden = f"<!-- run: a\n{self.LONG} word\n-->\n\n| {self.LONG} | word |\n"
        self.assertEqual(mend("docs/a.md", hidden), hidden)


if __name__ == "__main__":
    unittest.main()
