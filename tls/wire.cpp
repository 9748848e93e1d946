// wire.cpp - the BIO that OpenSSL uses as its connection: two pieces of memory.
#include <algorithm>
#include <cstring>
#include <new>

#include <openssl/bio.h>

#include "session.h"

namespace dunlin::inline v0_1::tls {

namespace {

wire& wire_of(BIO* bio) noexcept { return *static_cast<wire*>(BIO_get_data(bio)); }

int read_wire(BIO* bio, char* data, std::size_t size, std::size_t* done) {
    wire& w = wire_of(bio);
    BIO_clear_retry_flags(bio);
    if (w.in.empty()) {
        BIO_set_retry_read(bio);
        return 0;
    }
    *done = std::min(size, w.in.size());
    std::memcpy(data, w.in.data(), *done);
    w.in = w.in.subspan(*done);
    return 1;
}

int write_wire(BIO* bio, const char* data, std::size_t size, std::size_t* done) {
    wire& w = wire_of(bio);
    BIO_clear_retry_flags(bio);
    // No exception may pass through OpenSSL.
    try {
        w.out.insert(w.out.end(), data, data + size);
    } catch (const std::bad_alloc&) {
        w.out_of_memory = true;
        return -1;
    }
    *done = size;
    return 1;
}

long control_wire(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* wire_method() {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "dunlin");
        if (m == nullptr) throw std::bad_alloc();
        BIO_meth_set_read_ex(m, read_wire);
        BIO_meth_set_write_ex(m, write_wire);
        BIO_meth_set_ctrl(m, control_wire);
        return m;
    }();
    return method;
}

}  // namespace

BIO* make_wire_bio(wire& w) {
    BIO* bio = BIO_new(wire_method());
    if (bio == nullptr) throw std::bad_alloc();
    BIO_set_data(bio, &w);
    BIO_set_init(bio, 1);
    return bio;
}

}  // namespace dunlin::tls
