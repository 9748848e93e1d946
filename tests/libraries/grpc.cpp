// grpc.cpp - gRPC over loopback: unary calls by 100 goroutines, each with a completion queue that it sleeps in,
// answered by goroutines that sleep in the server's. gRPC's own threads and timers run beside them.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "libraries/library.h"

namespace {

grpc::ByteBuffer buffer(const std::string& text) {
    const grpc::Slice slice(text);
    return {&slice, 1};
}

std::string text(const grpc::ByteBuffer& b) {
    std::vector<grpc::Slice> slices;
    std::string all;
    if (b.Dump(&slices).ok()) {
        for (const grpc::Slice& s : slices) all.append(reinterpret_cast<const char*>(s.begin()), s.size());
    }
    return all;
}

// A call that the server answers with the text the other way round. Its steps come from the queue, one at a time.
class answer {
public:
    answer(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue) : service_(service), queue_(queue) {
        service_.RequestCall(&context_, &stream_, &queue_, &queue_, this);
    }

    // The step that has ended; false: nothing more will come.
    bool go_on(bool good) {
        if (!good) return false;
        switch (step_++) {
        case 0:
            new answer(service_, queue_);
            stream_.Read(&message_, this);
            return true;
        case 1: {
            std::string reversed = text(message_);
            std::ranges::reverse(reversed);
            dunlin::yield();  // on another thread from here, perhaps
            stream_.WriteAndFinish(buffer(reversed), {}, grpc::Status::OK, this);
            return true;
        }
        default: return false;
        }
    }

private:
    grpc::AsyncGenericService& service_;
    grpc::ServerCompletionQueue& queue_;
    grpc::GenericServerContext context_;
    grpc::GenericServerAsyncReaderWriter stream_{&context_};
    grpc::ByteBuffer message_;
    int step_ = 0;
};

void serve(grpc::ServerCompletionQueue& queue) {
    void* tag = nullptr;
    bool good = false;
    while (queue.Next(&tag, &good)) {
        auto* each = static_cast<answer*>(tag);
        if (!each->go_on(good)) delete each;
    }
}

void call(grpc::GenericStub& stub, const std::string& words) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto pending = stub.PrepareUnaryCall(&context, "/test.Reverse/Say", buffer(words), &queue);
    pending->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    int mark = 0;
    pending->Finish(&reply, &status, &mark);
    void* tag = nullptr;
    bool good = false;
    libraries::expect(queue.Next(&tag, &good) && good && tag == &mark, "nothing came");
    libraries::expect(status.ok(), "%s", status.error_message().c_str());
    std::string back = text(reply);
    std::ranges::reverse(back);
    libraries::expect(back == words, "another text");
    queue.Shutdown();
    while (queue.Next(&tag, &good)) {}
}

}  // namespace

int main() {
    libraries::program p("grpc " + grpc::Version());
    grpc::AsyncGenericService service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service);
    const auto queue = builder.AddCompletionQueue();
    const auto server = builder.BuildAndStart();
    if (!libraries::expect(server && port != 0, "no server")) return 1;
    const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
    grpc::GenericStub stub(channel);
    new answer(service, *queue);
    // Served by goroutines as well as called by them; by a plain thread between the runs, which ends with the queue.
    std::thread last([&] { serve(*queue); });
    libraries::in_goroutines({.goroutines = 100, .rounds = 5}, [&](int i, int round) {
        if (i < 4 && round == 0) {
            for (int n = 0; n < 20; ++n) {
                void* tag = nullptr;
                bool good = false;
                const auto until = std::chrono::system_clock::now() + std::chrono::milliseconds(50);
                if (queue->AsyncNext(&tag, &good, until) != grpc::CompletionQueue::GOT_EVENT) continue;
                auto* each = static_cast<answer*>(tag);
                if (!each->go_on(good)) delete each;
            }
        }
        call(stub, std::string(static_cast<std::size_t>(10 + i * 50), static_cast<char>('a' + round)) + "end");
    });
    server->Shutdown();
    queue->Shutdown();
    last.join();
    return p.result();
}
