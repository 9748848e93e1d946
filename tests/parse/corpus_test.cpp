// corpus_test.cpp - all that parses, over what is known to be awkward. libfuzzer.cpp looks for more.
#include <gtest/gtest.h>

#include "parse/corpus.h"
#include "parse/targets.h"

namespace {

TEST(Parse, TheCorpusAndWhatIsLikeIt) {
    for (const parse::target& t : parse::targets) {
        ASSERT_FALSE(parse::corpus_of(t.name).empty()) << t.name;
        parse::over_corpus(t.name, std::string_view(t.name) == "quota" ? 30 : 1000, t.run);
    }
}

}  // namespace
