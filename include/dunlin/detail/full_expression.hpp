// full_expression.hpp - until when a case of select() can give its value back.
#pragma once

#include <dunlin/config.hpp>

namespace dunlin::inline v0_1::detail {

// The full expression in which a case is made. It is a default argument, and so a temporary that lives exactly as long
// as that expression, and not longer than the object that the case's value was moved from. While it lives, a value that
// was not sent can be put back there.
class full_expression {
public:
    full_expression() noexcept = default;
    full_expression(const full_expression&) = delete;
    full_expression& operator=(const full_expression&) = delete;
    ~full_expression() {
        if (loan_ != nullptr) *loan_ = {};
    }

    struct loan {
        void* from = nullptr;  // null: the value is the case's own
        full_expression* during = nullptr;

        void end() noexcept {
            if (during != nullptr) during->loan_ = nullptr;
            *this = {};
        }
    };
    // `l` lies in the case, which ends before this object, or is kept and outlives it: the one that ends first tells
    // the other.
    void lend(loan& l, void* from) noexcept {
        l = {from, this};
        loan_ = &l;
    }

private:
    loan* loan_ = nullptr;
};

}  // namespace dunlin::detail
