// Power series whose terms come out of channels: Go's test/chan/powser1.go, under its name.
#include <array>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "support/runtime_test.h"

namespace {

class GoChanPowser : public support::each_p {};
EACH_P(GoChanPowser);

// ---- CHN-12 ---------------------------------------------------------------------------------------------------------

struct rational {
    std::int64_t num, den;

    rational(std::int64_t n, std::int64_t d = 1) {
        const std::int64_t common = std::gcd(n, d) * (d < 0 ? -1 : 1);
        num = n / common;
        den = d / common;
    }
    friend rational operator+(rational a, rational b) {
        const std::int64_t g = std::gcd(a.den, b.den);
        return {a.num * (b.den / g) + b.num * (a.den / g), a.den / g * b.den};
    }
    friend rational operator*(rational a, rational b) {
        const std::int64_t g = std::gcd(a.num, b.den), h = std::gcd(b.num, a.den);
        return {(a.num / g) * (b.num / h), (a.den / h) * (b.den / g)};
    }
    friend bool operator==(rational, rational) = default;
    friend std::ostream& operator<<(std::ostream& stream, rational r) { return stream << r.num << '/' << r.den; }
};

// A power series: a reader that wants the next coefficient asks for it first. All of them have infinitely many.
struct series {
    dunlin::chan<int> request;
    dunlin::chan<rational> answer;

    rational get() const {
        request.send(0);
        return *answer.recv();
    }
    void put(rational r) const {
        static_cast<void>(request.recv());
        answer.send(r);
    }
    void copy_from(const series& other) const {
        for (;;) {
            static_cast<void>(request.recv());
            answer.send(other.get());
        }
    }
};

std::pair<rational, rational> get_both(const series& u, const series& v) {
    std::optional<rational> a, b;
    series first = u, second = v;
    dunlin::chan<rational> from_first = dunlin::chan<rational>::nil(), from_second = from_first;
    for (int i = 0; i < 4; ++i) {
        dunlin::select(
            dunlin::on_send(first.request, 0,
                [&] {
                    first.request = dunlin::chan<int>::nil();
                    from_first = first.answer;
                }),
            dunlin::on_send(second.request, 0,
                [&] {
                    second.request = dunlin::chan<int>::nil();
                    from_second = second.answer;
                }),
            dunlin::on_recv(from_first,
                [&](std::optional<rational> r) {
                    a = r;
                    from_first = dunlin::chan<rational>::nil();
                }),
            dunlin::on_recv(from_second, [&](std::optional<rational> r) {
                b = r;
                from_second = dunlin::chan<rational>::nil();
            }));
    }
    return {*a, *b};
}

using two_series = std::array<series, 2>;

// One step for two readers that may be apart: the one ahead is served by the youngest generation, the other by the
// oldest, which tells the next that it is done.
void split_step(const series& in, two_series out, const dunlin::chan<bool>& older_done) {
    bool both = false;
    dunlin::select(dunlin::on_recv(out[0].request), dunlin::on_recv(older_done, [&] {
        both = true;
        dunlin::select(
            dunlin::on_recv(out[0].request), dunlin::on_recv(out[1].request, [&] { std::swap(out[0], out[1]); }));
    }));
    in.request.send(0);
    dunlin::chan<bool> done;
    dunlin::go([=] { split_step(in, out, done); });
    const rational r = *in.answer.recv();
    out[0].answer.send(r);
    if (!both) static_cast<void>(older_done.recv());
    static_cast<void>(out[1].request.recv());
    out[1].answer.send(r);
    done.send(true);
}

void split_into(const series& in, const two_series& out) {
    dunlin::chan<bool> begin;
    dunlin::go([=] { split_step(in, out, begin); });
    begin.send(true);
}

two_series split(const series& in) {
    two_series out;
    dunlin::go([=] { split_into(in, out); });
    return out;
}

// A series made by a goroutine that runs generate(z).
template <class F>
series made_by(F generate) {
    series z;
    dunlin::go([z, generate] { generate(z); });
    return z;
}

series constant(rational c) {
    return made_by([c](const series& z) {
        z.put(c);
        for (;;) z.put(0);
    });
}

series repeat(rational c) {
    return made_by([c](const series& z) {
        for (;;) z.put(c);
    });
}

series add(const series& u, const series& v) {
    return made_by([=](const series& z) {
        for (;;) {
            static_cast<void>(z.request.recv());
            const auto [a, b] = get_both(u, v);
            z.answer.send(a + b);
        }
    });
}

series times(rational c, const series& u) {
    return made_by([=](const series& z) {
        for (;;) {
            static_cast<void>(z.request.recv());
            z.answer.send(c * u.get());
        }
    });
}

// (u + x U)(v + x V) = uv + x (uV + vU) + x^2 UV
series product(const series& u, const series& v) {
    return made_by([=](const series& z) {
        static_cast<void>(z.request.recv());
        const auto [a, b] = get_both(u, v);
        z.answer.send(a * b);
        const two_series us = split(u), vs = split(v);
        const series w = add(times(a, vs[0]), times(b, us[0]));
        static_cast<void>(z.request.recv());
        z.answer.send(w.get());
        z.copy_from(add(w, product(us[1], vs[1])));
    });
}

series derivative(const series& u) {
    return made_by([=](const series& z) {
        static_cast<void>(z.request.recv());
        static_cast<void>(u.get());
        for (int i = 1;; ++i) {
            z.answer.send(rational(i) * u.get());
            static_cast<void>(z.request.recv());
        }
    });
}

series integral(rational c, const series& u) {
    return made_by([=](const series& z) {
        z.put(c);
        for (int i = 1;; ++i) {
            static_cast<void>(z.request.recv());
            z.answer.send(rational(1, i) * u.get());
        }
    });
}

// Z' = Z U', with itself as input.
series exponential(const series& u) {
    two_series z;
    split_into(integral(1, product(z[0], derivative(u))), z);
    return z[1];
}

// T' = 1 + T^2
series tangent() {
    two_series t;
    const two_series factors = split(t[0]);
    split_into(integral(0, add(constant(1), product(factors[0], factors[1]))), t);
    return t[1];
}

void expect_terms(const char* name, const series& u, const std::vector<rational>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(u.get(), expected[i]) << "term " << i << " of " << name;
}

// CHN-12, go1.24 test/chan/powser1.go, from "Squinting at Power Series" by Doug McIlroy. A goroutine that was not asked
// again waits for ever.
TEST_P(GoChanPowser, powser1) {
    run([] {
        const series ones = repeat(1), twos = repeat(2);
        expect_terms("Add", add(ones, twos), {3, 3, 3, 3, 3});
        expect_terms("Diff", derivative(ones), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
        expect_terms(
            "Integ", integral(0, ones), {0, 1, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {1, 7}, {1, 8}, {1, 9}});
        expect_terms("Mul", product(ones, ones), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
        expect_terms("Exp", exponential(ones),
            {1, 1, {3, 2}, {13, 6}, {73, 24}, {167, 40}, {4051, 720}, {37633, 5040}, {43817, 4480}, {4596553, 362880}});
        for (int i = 0; i < support::rounds(60); ++i) {
            expect_terms(
                "Tan", tangent(), {0, 1, 0, {1, 3}, 0, {2, 15}, 0, {17, 315}, 0, {62, 2835}, 0, {1382, 155925}});
        }
        EXPECT_GT(dunlin::runtime::num_goroutines(), static_cast<std::size_t>(support::rounds(2000)));
    });
}

}  // namespace
