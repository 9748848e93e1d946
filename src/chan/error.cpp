// error.cpp - the category of dunlin::errc.
#include <dunlin/error.hpp>

namespace dunlin::inline v0_1 {

namespace {

class category final : public std::error_category {
public:
    const char* name() const noexcept override { return "dunlin"; }

    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
        case errc::closed: return "closed";
        case errc::channel_closed: return "channel closed";
        case errc::cancelled: return "context canceled";
        case errc::deadline_exceeded: return "context deadline exceeded";
        case errc::end_of_file: return "unexpected end of file";
        case errc::no_deadlines: return "file type does not support deadlines";
        case errc::host_not_found: return "no such host";
        case errc::bad_address: return "bad address";
        case errc::peer_silent: return "connection timed out";
        }
        return "unknown error " + std::to_string(value);
    }

    std::error_condition default_error_condition(int value) const noexcept override {
        switch (static_cast<errc>(value)) {
        case errc::cancelled: return std::make_error_condition(std::errc::operation_canceled);
        case errc::deadline_exceeded:
        case errc::peer_silent: return std::make_error_condition(std::errc::timed_out);
        default: return {value, *this};
        }
    }
};

// Never destroyed: codes that still exist at the end of the program refer to it. Nor allocated, which may fail; nor a
// static of the function below: a goroutine may be left behind while it initialises one.
constinit union never_destroyed {
    category c;
    constexpr never_destroyed() : c() {}
    ~never_destroyed() {}
} the_category;

}  // namespace

const std::error_category& error_category() noexcept {
    return the_category.c;
}

channel_closed::~channel_closed() = default;
context_cancelled::~context_cancelled() = default;

context_cancelled::context_cancelled(std::error_code code, const char* operation, std::exception_ptr cause)
    : std::system_error(code, operation), cause_(std::move(cause)) {
    if (cause_ == nullptr) return;
    try {
        std::rethrow_exception(cause_);
    } catch (const std::exception& e) {
        text_ = std::make_shared<const std::string>(std::string(std::system_error::what()) + ": " + e.what());
    } catch (...) {
        // it has no text
    }
}

}  // namespace dunlin
