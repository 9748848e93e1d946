// batch_main.cpp - main() of a program with the tests of several files: --file=chan/select_test.cpp runs those of that
// file.
//
// The tests of all other files are taken out with negative patterns, behind what --gtest_filter or GTEST_FILTER ask
// for. So that works as it does with a program of one file, and so do death tests, which start this program again with
// a filter of their own.
#include <cstdio>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    std::string_view file;
    for (int i = 1; i < argc; ++i) {
        constexpr std::string_view option = "--file=";
        const std::string_view argument = argv[i];
        if (!argument.starts_with(option)) {
            std::fprintf(stderr, "%s: '%s' is not known; expected --file=LAYER/NAME_test.cpp or GoogleTest's options\n",
                argv[0], argv[i]);
            return 2;
        }
        file = argument.substr(option.size());
    }
    if (!file.empty()) {
        std::string others;
        bool found = false;
        const testing::UnitTest& all = *testing::UnitTest::GetInstance();
        for (int s = 0; s < all.total_test_suite_count(); ++s) {
            const testing::TestSuite& suite = *all.GetTestSuite(s);
            for (int t = 0; t < suite.total_test_count(); ++t) {
                const testing::TestInfo& test = *suite.GetTestInfo(t);
                if (std::string_view(test.file()).ends_with("/" + std::string(file))) {
                    found = true;
                } else {
                    others.append(":").append(suite.name()).append(".").append(test.name());
                }
            }
        }
        if (!found) {
            std::fprintf(stderr, "%s: no test of '%s' is in this program\n", argv[0], std::string(file).c_str());
            return 2;
        }
        std::string& filter = testing::GTEST_FLAG(filter);
        if (!others.empty() && filter.find('-') == std::string::npos) others[0] = '-';
        filter += others;
    }
    return RUN_ALL_TESTS();
}
