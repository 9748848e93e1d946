// leveldb.cpp - LevelDB: one database for all; it has a thread that compacts, and writers wait for each other in
// condition variables.
#include <leveldb/db.h>
#include <memory>

#include "libraries/library.h"

int main() {
    libraries::program p("LevelDB " + std::to_string(leveldb::kMajorVersion) + "." +
        std::to_string(leveldb::kMinorVersion));
    const libraries::folder folder;
    leveldb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = 64 * 1024;
    leveldb::DB* made = nullptr;
    if (!leveldb::DB::Open(options, folder.path + "/db", &made).ok()) return 1;
    const std::unique_ptr<leveldb::DB> db(made);
    libraries::in_goroutines({.goroutines = 200, .rounds = 3}, [&](int i, int round) {
        for (int k = 0; k < 20; ++k) {
            const std::string key = std::to_string(i) + "/" + std::to_string(k),
                value(500, static_cast<char>('a' + (i + round) % 26));
            libraries::expect(db->Put({}, key, value).ok(), "Put");
            std::string found;
            libraries::expect(db->Get({}, key, &found).ok() && found == value, "another value");
        }
        const std::unique_ptr<leveldb::Iterator> it(db->NewIterator({}));
        int count = 0;
        for (it->Seek(std::to_string(i) + "/"); it->Valid() &&
            it->key().starts_with(std::to_string(i) + "/"); it->Next()) ++count;
        libraries::expect(count == 20, "%d keys", count);
    });
    return p.result();
}
