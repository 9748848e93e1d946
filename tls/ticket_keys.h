// ticket_keys.h - the keys that encrypt session tickets, and their succession.
//
// Problem    An attacker that learns a ticket's key can read the data of its session (TLS 1.2) and impersonate the
//            ticket's owner. OpenSSL makes one key and keeps it for as long as the process runs.
// Protocol   The current key encrypts. When it has served for `period` it becomes the previous one, which still
//            decrypts (the client then gets a new ticket), until it is two periods old. Keys are changed only when a
//            ticket is made or shown, so a server without clients keeps its keys in memory, and a client that comes too
//            late makes a full handshake.
//            A ticket of TLS 1.3 is for one use (RFC 8446, C.4), so a client that shows one gets another. So a session
//            may be resumed again and again, but not for ever: each ticket has within it the time of the full
//            handshake, and after `periods_of_session` key periods there is another one, at which certificates are
//            verified. So there is at once if the certificate that the session holds has expired.
// Owner      OpenSSL asks the callbacks of the context with which the connection was made. A server-name callback of
//            the program may have given it another context since, so the keys are noted at the connection.
// Threads    Called inside OpenSSL, where nothing may park: so the lock is a std::mutex, held for a few copies.
// Source     Go's crypto/tls: a new key each day, seven of them valid; a session of seven days at most; none whose
//            certificate has expired.
#pragma once

#include <array>
#include <chrono>
#include <mutex>

#include <openssl/ssl.h>

namespace dunlin::inline v0_1::tls {

class ticket_keys {
public:
    ticket_keys() noexcept = default;
    ~ticket_keys();
    ticket_keys(const ticket_keys&) = delete;
    ticket_keys& operator=(const ticket_keys&) = delete;

    // From then on the tickets of this context use these keys. Throws std::bad_alloc.
    void serve(SSL_CTX* context, std::chrono::nanoseconds period);
    // A server's connection; without this it gives out no tickets. Throws std::bad_alloc.
    void be_used_by(SSL* s);
    // Tickets that were made before are worth nothing from now on.
    void forget() noexcept;

private:
    struct key {
        std::array<unsigned char, 16> name;
        std::array<unsigned char, 32> cipher, mac;
    };
    enum class verdict { failed = -1, unknown = 0, current = 1, previous = 2 };  // as OpenSSL wants them

    static int choose(
        SSL* s, unsigned char* name, unsigned char* iv, EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac, int encrypt);
    static int date(SSL* s, void* keys);
    static SSL_TICKET_RETURN judge(SSL* s, SSL_SESSION* shown, const unsigned char* name, std::size_t name_size,
        SSL_TICKET_STATUS status, void* keys);
    bool is_old(SSL_SESSION* shown);
    bool succeed(std::chrono::steady_clock::time_point now);
    verdict current(key& k);
    verdict named(const unsigned char* name, key& k);

    std::mutex lock_;
    // All under lock_.
    std::chrono::nanoseconds period_{};
    std::chrono::steady_clock::time_point changed_{}, previous_made_{};  // when each key was made
    key current_{}, previous_{};
    bool has_current_ = false, has_previous_ = false;
};

}  // namespace dunlin::tls
