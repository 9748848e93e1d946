// rocksdb.cpp - RocksDB: one database for all; it has threads that flush and compact, keeps state for each thread, and
// writers wait for each other in condition variables.
#include <rocksdb/db.h>
#include <rocksdb/version.h>
#include <memory>

#include "libraries/library.h"

int main() {
    libraries::program p("RocksDB " + std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR));
    const libraries::folder folder;
    rocksdb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = 64 * 1024;
    rocksdb::DB* made = nullptr;
    if (!rocksdb::DB::Open(options, folder.path + "/db", &made).ok()) return 1;
    const std::unique_ptr<rocksdb::DB> db(made);
    libraries::in_goroutines({.goroutines = 200, .rounds = 3}, [&](int i, int round) {
        for (int k = 0; k < 20; ++k) {
            const std::string key = std::to_string(i) + "/" + std::to_string(k),
                value(500, static_cast<char>('a' + (i + round) % 26));
            libraries::expect(db->Put({}, key, value).ok(), "Put");
            std::string found;
            libraries::expect(db->Get({}, key, &found).ok() && found == value, "another value");
        }
        const std::unique_ptr<rocksdb::Iterator> it(db->NewIterator({}));
        int count = 0;
        for (it->Seek(std::to_string(i) + "/"); it->Valid() &&
            it->key().starts_with(std::to_string(i) + "/"); it->Next()) ++count;
        libraries::expect(count == 20, "%d keys", count);
    });
    return p.result();
}
