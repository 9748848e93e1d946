// corpus.h - runs a target over its corpus, and over what small changes make of it: always the same ones.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace parse {

inline std::vector<std::string> corpus_of(const std::string& name) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry :
        std::filesystem::directory_iterator(std::string(DUNLIN_SOURCE_DIR "/tests/parse/corpus/") + name))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<std::string> texts;
    for (const auto& file : files) {
        std::ifstream in(file, std::ios::binary);
        texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return texts;
}

class changes {
public:
    std::string of(std::string text, const std::string& other) {
        for (unsigned steps = 1 + next() % 3; steps > 0; --steps) {
            const std::size_t at = text.empty() ? 0 : next() % text.size(), size = 1 + next() % 8;
            switch (next() % 5) {
            case 0: text.insert(at, size, static_cast<char>(next())); break;
            case 1: text.erase(at, size); break;
            case 2: text.insert(at, text.substr(at, size)); break;
            case 3: text = text.substr(0, at) + (other.empty() ? "" : other.substr(next() % other.size())); break;
            default:
                if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << next() % 8));
            }
        }
        return text;
    }

private:
    unsigned next() noexcept { return (seed_ = seed_ * 1664525 + 1013904223) >> 8; }
    unsigned seed_ = 1;
};

// What is in the corpus, and `per_text` changes of each.
template <class Run>
void over_corpus(const std::string& name, int per_text, Run run) {
    const std::vector<std::string> texts = corpus_of(name);
    changes changed;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        run(texts[i]);
        for (int k = 0; k < per_text; ++k)
            run(changed.of(texts[i], texts[(i + static_cast<std::size_t>(k)) % texts.size()]));
    }
}

}  // namespace parse
