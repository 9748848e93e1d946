// What is on the wire, with a server of the test's own that says what real ones say seldom.
#include <atomic>
#include <functional>

#include "nats/servers.h"

namespace {

using namespace std::chrono_literals;
namespace nats = dunlin::nats;
using nats_protocol = support::nats_test;

// One connection: answers INFO, PING and JetStream's questions; `heard` sees each line or published message first, and
// may send.
class scripted_server {
public:
    using listener = std::function<void(scripted_server&, const std::string& line, const std::string& payload)>;

    explicit scripted_server(listener heard)
        : heard_(std::move(heard)),
          port_(support::free_port()),
          listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in a = fleet::on_loopback(port_);
        const int yes = 1;
        setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(listening_, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0 || listen(listening_, 4) != 0)
            throw std::runtime_error("bind");
        thread_ = std::thread([this] { serve(); });
    }
    ~scripted_server() {
        shutdown(listening_, SHUT_RDWR);
        if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
        thread_.join();
        if (socket_ >= 0) close(socket_);
        close(listening_);
    }
    scripted_server(const scripted_server&) = delete;
    scripted_server& operator=(const scripted_server&) = delete;

    std::string url() const { return "nats://127.0.0.1:" + std::to_string(port_); }
    void send(const std::string& text) const {
        if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0) std::perror("send");
    }
    void message(
        const std::string& sid, const std::string& subject, const std::string& reply, const std::string& data) const {
        send("MSG " + subject + " " + sid + " " + (reply.empty() ? "" : reply + " ") + std::to_string(data.size()) +
             "\r\n" + data + "\r\n");
    }

private:
    void serve() {
        socket_ = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket_ < 0) return;
        send(
            "INFO {\"server_id\":\"scripted\",\"version\":\"2.9.10\",\"proto\":1,\"headers\":true,\"max_payload\":1048576,\"jetstream\":true}\r\n");
        std::string line;
        while (read_line(line)) {
            std::string payload;
            std::vector<std::string> words;
            for (std::size_t from = 0; from < line.size();) {
                const std::size_t blank = std::min(line.find(' ', from), line.size());
                if (blank > from) words.push_back(line.substr(from, blank - from));
                from = blank + 1;
            }
            if (words.empty()) continue;
            if (words[0] == "PUB" || words[0] == "HPUB") {
                payload.resize(std::stoul(words.back()) + 2);
                if (recv(socket_, payload.data(), payload.size(), MSG_WAITALL) != static_cast<ssize_t>(payload.size()))
                    break;
                payload.resize(payload.size() - 2);
            }
            heard_(*this, line, payload);
            if (words[0] == "PING") send("PONG\r\n");
            if (words[0] == "SUB" && words[1].ends_with(".*")) answers_ = words[2];
            if (words[0] == "PUB" && words[1].starts_with("$JS.API.STREAM.INFO.")) {
                message(answers_, words[2], "",
                    "{\"config\":{\"retention\":\"workqueue\",\"storage\":\"file\",\"num_replicas\":1,\"max_msgs\":-1,\"max_bytes\":-1,"
                    "\"duplicate_window\":120000000000}}");
            }
            if (words[0] == "PUB" && words[1].starts_with("$JS.API.CONSUMER.INFO."))
                message(answers_, words[2], "", "{\"config\":{\"ack_wait\":30000000000}}");
        }
    }
    bool read_line(std::string& line) const {
        line.clear();
        for (char c = 0; recv(socket_, &c, 1, 0) == 1;) {
            if (c == '\n') return true;
            if (c != '\r') line += c;
        }
        return false;
    }

    listener heard_;
    int port_, listening_;
    std::atomic<int> socket_{-1};
    std::string answers_;
    std::thread thread_;
};

// The second word of a line, and so on.
std::string word(const std::string& line, int n) {
    std::size_t from = 0;
    for (; n > 0; --n) from = std::min(line.find_first_not_of(' ', line.find(' ', from)), line.size());
    return line.substr(from, line.find(' ', from) - from);
}

// A job that the server had sent before it heard that the consumer has ended is handed back at once: its word comes,
// and not the end of ack_wait.
TEST_F(nats_protocol, AJobOnItsWayToAConsumerThatHasEndedIsHandedBack) {
    const std::string ack = "$JS.ACK.jobs.workers.1.1.1.1700000000000000000.0";
    std::string intake;
    dunlin::chan<std::string> words(16);
    scripted_server server([&](scripted_server& s, const std::string& line, const std::string& payload) {
        if (line.starts_with("SUB ") && word(line, 1).find("-0") != std::string::npos) intake = word(line, 2);
        if (line.starts_with("UNSUB ") && word(line, 1) == intake) s.message(intake, "jobs", ack, "7");
        if (line.starts_with("PUB " + ack)) words.try_send(payload);
    });
    dunlin::run([&] {
        auto cluster = nats::connect(server.url());
        auto jobs = cluster.queue<std::string>("jobs", {.ack_wait = 30s});
        {
            auto consumer = jobs.consume();
            EXPECT_FALSE(consumer.recv_for(50ms));  // a pull is under way
        }
        EXPECT_EQ(words.recv_for(5s).value_or("nothing"), "-NAK");
        cluster.close();
    });
}

// The same when it is the connection that ends, and the consumer lives: close() waits for what is on its way.
TEST_F(nats_protocol, AJobOnItsWayWhenTheConnectionIsClosedIsHandedBack) {
    const std::string ack = "$JS.ACK.jobs.workers.1.1.1.1700000000000000000.0";
    std::string intake;
    dunlin::chan<std::string> words(16);
    scripted_server server([&](scripted_server& s, const std::string& line, const std::string& payload) {
        if (line.starts_with("SUB ") && word(line, 1).find("-0") != std::string::npos) intake = word(line, 2);
        if (line.starts_with("UNSUB ") && word(line, 1) == intake) s.message(intake, "jobs", ack, "7");
        if (line.starts_with("PUB " + ack)) words.try_send(payload);
    });
    dunlin::run([&] {
        auto cluster = nats::connect(server.url());
        auto jobs = cluster.queue<std::string>("jobs", {.ack_wait = 30s});
        auto consumer = jobs.consume();
        EXPECT_FALSE(consumer.recv_for(50ms));  // a pull is under way
        cluster.close();
        EXPECT_EQ(words.recv_for(5s).value_or("nothing"), "-NAK");
    });
}

// drain(): a request that the server had sent before it heard of it is answered.
TEST_F(nats_protocol, ARequestOnItsWayToAServerThatDrainsIsAnswered) {
    std::string intake;
    dunlin::chan<std::string> answers(16);
    scripted_server server([&](scripted_server& s, const std::string& line, const std::string& payload) {
        if (line.starts_with("SUB work ")) intake = word(line, 3);
        if (line.starts_with("UNSUB ") && word(line, 1) == intake) s.message(intake, "work", "_INBOX.caller", "7");
        if (line.starts_with("PUB _INBOX.caller")) answers.try_send(payload);
        // Its own messages come back: the round trip of serve().
        if (line.starts_with("PUB _INBOX.") && word(line, 1) == word(line, 2)) s.message("1", word(line, 1), "", "");
    });
    dunlin::run([&] {
        auto cluster = nats::connect(server.url());
        auto served = nats::serve(cluster, "work",
            [](const nats::message& m, const dunlin::context&) { return "done " + std::string(m.data()); });
        served.drain();
        EXPECT_EQ(answers.recv_for(5s).value_or("nothing"), "done 7");
        cluster.close();
    });
}

}  // namespace
