// lua.cpp - Lua: a state for each goroutine; recursion of Lua and of C (the parser, string patterns), coroutines, and
// errors, which are longjmp().
#include <lua.hpp>

#include "libraries/library.h"

int main() {
    libraries::program p(LUA_RELEASE);
    static const char script[] = R"lua(
        local function fibonacci(n) return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2) end
        assert(fibonacci(18) == 2584)
        local function deep(n) return n == 0 and 0 or 1 + deep(n - 1) end
        assert(deep(10000) == 10000)
        local function endless() return 1 + endless() end
        if number % 20 == 0 then assert(not pcall(endless)) end
        local sum = 0
        for i in coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end) do sum = sum + i end
        assert(sum == 500500)
        for i = 1, 200 do assert(not pcall(error, { i })) end
        assert(load("return " .. string.rep("(", 150) .. "7" .. string.rep(")", 150))() == 7)
        local words = {}
        for i = 1, 2000 do words[i] = tostring(i * 7919 % 2003) end
        table.sort(words)
        for i = 2, #words do assert(words[i - 1] <= words[i]) end
        collectgarbage()
        return number * 2
    )lua";
    libraries::in_goroutines({.goroutines = 60, .rounds = 2}, [](int i, int) {
        lua_State* state = luaL_newstate();
        luaL_openlibs(state);
        lua_pushinteger(state, i);
        lua_setglobal(state, "number");
        const bool good = luaL_dostring(state, script) == LUA_OK;
        libraries::expect(good && lua_tointeger(state, -1) == i * 2, "%s",
            good ? "another number" : lua_tostring(state, -1));
        lua_close(state);
    });
    return p.result();
}
