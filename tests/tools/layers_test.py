"""tools/layers must see what it is there to see, and nothing else. Run by ctest as tools/layers."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOOL = os.path.join(ROOT, "tools", "layers")

with open(os.path.join(ROOT, "tools", "layers.txt"), encoding="utf-8") as rules:
    RULES = rules.read()
LINE_OF = {layer: n for n, line in enumerate(RULES.splitlines(), 1) for layer in line.split("#")[0].split(":")[0].split()}


def check(files, *options):
    """What the tool says of a tree of these files: (exit status, its lines)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {"tools/layers.txt": RULES, **files}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        result = subprocess.run([sys.executable, TOOL, *options, root], capture_output=True, text=True)
        return result.returncode, (result.stdout + result.stderr).splitlines()


def picture(files, option="--picture"):
    """What is included from where, in such a tree."""
    status, lines = check(files, option)
    return [line.rstrip() for line in lines] if status == 0 else []


class Layers(unittest.TestCase):
    def expect(self, files, *faults):
        self.assertEqual(check(files), (1 if faults else 0, list(faults)))

    def test_an_include_that_points_upward_fails_with_its_place_and_its_rule(self):
        self.expect({"src/park/x.cpp": '#include "park/x.h"\n\n#include "sync/mutex.h"\n', "src/park/x.h": "", "src/sync/mutex.h": ""},
                    f"src/park/x.cpp:3: park may not include sync (tools/layers.txt:{LINE_OF['park']})")

    def test_a_header_that_does_not_exist_yet_counts_by_its_name(self):
        self.expect({"src/park/x.cpp": '#include "sync/mutex.h"\n'},
                    f"src/park/x.cpp:1: park may not include sync (tools/layers.txt:{LINE_OF['park']})")

    def test_downwards_and_within_a_layer_is_allowed(self):
        self.expect({"src/sync/mutex.cpp": '#include "sync/mutex.h"\n#include "mutex.h"\n#include "park/x.h"\n#include <mutex>\n',
                     "src/sync/mutex.h": "#pragma once\n", "src/park/x.h": "#pragma once\n"})

    def test_a_path_through_the_parent_folder_is_no_way_round(self):
        self.expect({"src/park/x.cpp": '#include "../sync/mutex.h"\n', "src/sync/mutex.h": ""},
                    f"src/park/x.cpp:1: park may not include sync (tools/layers.txt:{LINE_OF['park']})")

    def test_layers_of_one_line_may_use_each_other_in_one_direction(self):
        one_way = {"src/context/a.cpp": '#include "chan/b.h"\n', "src/chan/b.h": ""}
        self.expect(one_way)
        self.expect({**one_way, "src/chan/b.h": '#include "context/a.h"\n', "src/context/a.h": ""},
                    "src/chan/b.h:1: chan and context may not include each other, see src/context/a.cpp:1 "
                    f"(tools/layers.txt:{LINE_OF['chan']})")

    def test_runtime_cpp_may_include_everything(self):
        self.expect({"src/runtime.cpp": '#include "explorer/x.h"\n#include <dunlin/dunlin.hpp>\n', "src/explorer/x.h": ""})

    def test_no_other_file_includes_everything(self):
        self.expect({"src/chan/x.cpp": "#include <dunlin/dunlin.hpp>\n"},
                    "src/chan/x.cpp:1: chan may not include all of dunlin (dunlin/dunlin.hpp): name the header that is needed")

    def test_a_folder_without_a_place_in_the_order_fails(self):
        self.expect({"src/misc/x.cpp": ""}, "src/misc/x.cpp:1: misc is no layer (add it to tools/layers.txt)")

    def test_an_include_that_points_upward_among_the_rooms_of_a_layer_fails(self):
        self.expect({"src/sched/data/x.h": '#include "sched/work/y.h"\n', "src/sched/work/y.h": '#include "sched/data/x.h"\n#include "y.h"\n'},
                    f"src/sched/data/x.h:1: sched/data may not include sched/work (tools/layers.txt:{LINE_OF['sched']})")
        self.expect({"src/sched/data/x.h": '#include "../work/y.h"\n', "src/sched/work/y.h": ""},
                    f"src/sched/data/x.h:1: sched/data may not include sched/work (tools/layers.txt:{LINE_OF['sched']})")

    def test_every_file_of_a_layer_with_rooms_stands_in_one(self):
        self.expect({"src/sched/x.h": "", "src/sched/attic/y.h": "", "src/sched/work/z.h": ""},
                    f"src/sched/x.h:1: it stands in no room of sched (tools/layers.txt:{LINE_OF['sched']})",
                    f"src/sched/attic/y.h:1: attic is no room of sched (tools/layers.txt:{LINE_OF['sched']})")

    def test_the_picture_counts_includes_and_marks_what_points_upward(self):
        files = {"src/sched/data/x.h": '#include "sched/work/y.h"\n', "src/sched/work/y.h": '#include "sched/data/x.h"\n#include "platform/a.h"\n',
                 "src/sched/work/z.cpp": '#include "sched/work/y.h"\n#include "sched/data/x.h"\n', "src/platform/a.h": ""}
        self.assertEqual(picture(files), ["sched/work         sched/data 2  platform 1", "sched/data         UP sched/work 1", "platform"])
        self.assertIn('    "sched/work" -> "sched/data" [label=2];', picture(files, "--picture=dot"))

    def test_comments_do_not_count(self):
        self.expect({"src/park/x.cpp": '// #include "sync/a.h"\n/* one\n#include "sync/a.h"\n*/\n/* #include "sync/a.h" */\n'})

    def test_only_platform_and_stack_ask_for_the_processor(self):
        self.expect({"src/platform/x.h": "#ifdef __linux__\n#endif\n", "src/stack/x.h": "#if defined(__x86_64__)\n#endif\n"})
        self.expect({"src/park/x.h": "#ifndef NDEBUG\n#elif defined(__aarch64__)\n#endif\n"},
                    "src/park/x.h:2: __aarch64__ is asked for outside src/platform and src/stack")

    def test_public_headers_need_nothing_that_is_not_installed(self):
        self.expect({"include/dunlin/a.hpp": '#include <cstdint>\n#include <stdint.h>\n#include <dunlin/b.hpp>\n#include "b.hpp"\n',
                     "include/dunlin/b.hpp": ""})
        self.expect({"include/dunlin/a.hpp": '#include "sched/data/types.h"\n', "src/sched/data/types.h": ""},
                    "include/dunlin/a.hpp:1: a public header may not include sched/data/types.h, which is not installed")

    def test_public_headers_include_no_header_of_the_operating_system(self):
        self.expect({"include/dunlin/a.hpp": "#include <vector>\n#include <sys/epoll.h>\n#ifdef __linux__\n#endif\n"},
                    "include/dunlin/a.hpp:2: a public header may not include sys/epoll.h, a header of the operating system",
                    "include/dunlin/a.hpp:3: __linux__ is asked for in a public header")

    def test_the_tower_in_the_architecture_page_is_that_of_the_rules(self):
        rules = [line.split("#")[0].replace(":", "").split() for line in RULES.splitlines()]
        expected = [name for names in reversed(rules) if names for name in (names[:1] + names[:0:-1] if "sched" in names else names)]
        expected.remove("explorer")  # compiled in the simulation build only
        with open(os.path.join(ROOT, "ARCHITECTURE.md"), encoding="utf-8") as page:
            tower = page.read().split("### 2. The tower")[1].split("```")[1]
        drawn = []
        for line in tower.splitlines():
            words = line.replace("+--", "").replace("|", "").split()
            while words and words[0] in expected:
                drawn.append(words.pop(0))
        self.assertEqual(drawn, expected)

    def test_this_tree_is_in_order(self):
        result = subprocess.run([sys.executable, TOOL, ROOT], capture_output=True, text=True)
        self.assertEqual((result.stdout, result.returncode), ("", 0))


if __name__ == "__main__":
    unittest.main()
