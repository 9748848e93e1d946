// sha256.h - SHA-256 (FIPS 180-4), so that the tour has something real to compute without a library.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tour {

class sha256 {
public:
    using digest = std::array<std::uint8_t, 32>;

    void add(const void* data, std::size_t bytes) {
        const auto* in = static_cast<const std::uint8_t*>(data);
        length_ += bytes;
        while (bytes != 0) {
            if (filled_ == 0 && bytes >= sizeof block_) {
                mix(in);
                in += sizeof block_;
                bytes -= sizeof block_;
                continue;
            }
            const std::size_t part = bytes < sizeof block_ - filled_ ? bytes : sizeof block_ - filled_;
            std::memcpy(block_ + filled_, in, part);
            filled_ += part;
            in += part;
            bytes -= part;
            if (filled_ == sizeof block_) {
                mix(block_);
                filled_ = 0;
            }
        }
    }

    digest finish() {
        const std::uint64_t bits = 8 * length_;
        const std::uint8_t one = 0x80, zero = 0;
        add(&one, 1);
        while (filled_ != 56) add(&zero, 1);
        std::uint8_t size[8];
        for (int i = 0; i < 8; ++i) size[i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
        add(size, 8);
        digest out;
        for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
        return out;
    }

    static digest of(std::string_view text) {
        sha256 hash;
        hash.add(text.data(), text.size());
        return hash.finish();
    }

    static std::string hex(const digest& d) {
        std::string out;
        for (std::uint8_t byte : d) {
            out += "0123456789abcdef"[byte >> 4];
            out += "0123456789abcdef"[byte & 15];
        }
        return out;
    }

private:
    // The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
    static constexpr std::uint32_t constants[64] = {
        0x428a2f98,
        0x71374491,
        0xb5c0fbcf,
        0xe9b5dba5,
        0x3956c25b,
        0x59f111f1,
        0x923f82a4,
        0xab1c5ed5,
        0xd807aa98,
        0x12835b01,
        0x243185be,
        0x550c7dc3,
        0x72be5d74,
        0x80deb1fe,
        0x9bdc06a7,
        0xc19bf174,
        0xe49b69c1,
        0xefbe4786,
        0x0fc19dc6,
        0x240ca1cc,
        0x2de92c6f,
        0x4a7484aa,
        0x5cb0a9dc,
        0x76f988da,
        0x983e5152,
        0xa831c66d,
        0xb00327c8,
        0xbf597fc7,
        0xc6e00bf3,
        0xd5a79147,
        0x06ca6351,
        0x14292967,
        0x27b70a85,
        0x2e1b2138,
        0x4d2c6dfc,
        0x53380d13,
        0x650a7354,
        0x766a0abb,
        0x81c2c92e,
        0x92722c85,
        0xa2bfe8a1,
        0xa81a664b,
        0xc24b8b70,
        0xc76c51a3,
        0xd192e819,
        0xd6990624,
        0xf40e3585,
        0x106aa070,
        0x19a4c116,
        0x1e376c08,
        0x2748774c,
        0x34b0bcb5,
        0x391c0cb3,
        0x4ed8aa4a,
        0x5b9cca4f,
        0x682e6ff3,
        0x748f82ee,
        0x78a5636f,
        0x84c87814,
        0x8cc70208,
        0x90befffa,
        0xa4506ceb,
        0xbef9a3f7,
        0xc67178f2,
    };

    void mix(const std::uint8_t* in) {
        using std::rotr;
        std::uint32_t w[64];
        for (int i = 0; i < 16; ++i) {
            w[i] = std::uint32_t{in[4 * i]} << 24 | std::uint32_t{in[4 * i + 1]} << 16 |
                   std::uint32_t{in[4 * i + 2]} << 8 | in[4 * i + 3];
        }
        for (int i = 16; i < 64; ++i) {
            const std::uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
            const std::uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        for (int i = 0; i < 64; ++i) {
            const std::uint32_t t1 =
                h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i];
            const std::uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1;
            d = c, c = b, b = a, a = t1 + t2;
        }
        const std::uint32_t mixed[8] = {a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
    }

    // The same of the square roots of the first 8 primes.
    std::array<std::uint32_t, 8> state_ = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::uint8_t block_[64];
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};

}  // namespace tour
