// python.cpp - CPython, embedded: goroutines take the interpreter's lock, and give it away where Python does (every 5
// ms, and in time.sleep()).
#include <Python.h>

#include "libraries/library.h"

int main() {
    libraries::program p(std::string("Python ") + Py_GetVersion());
    Py_InitializeEx(0);
    static const char script[] = R"(
import json, re, time, threading
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
def work(number):
    assert deep(500) == 500
    try:
        deep(10 ** 6)
        assert False
    except RecursionError:
        pass
    assert json.loads(json.dumps(list(range(number, number + 300))))[-1] == number + 299
    assert re.fullmatch('(a|b)*', 'a' * 7000)
    local = threading.local()
    local.number = number
    time.sleep(0.002)
    assert local.number == number
    return sum(range(5000)) + number
)";
    if (PyRun_SimpleString(script) != 0) return 1;
    PyThreadState* own = PyEval_SaveThread();
    libraries::in_goroutines({.goroutines = 100, .rounds = 2}, [](int i, int) {
        const PyGILState_STATE held = PyGILState_Ensure();
        PyObject* module = PyImport_AddModule("__main__");
        PyObject* value = PyObject_CallMethod(module, "work", "i", i);
        libraries::expect(value && PyLong_AsLong(value) == 12497500 + i, "work() gives another number");
        if (PyErr_Occurred()) PyErr_Print();
        Py_XDECREF(value);
        PyGILState_Release(held);
    });
    PyEval_RestoreThread(own);
    libraries::expect(Py_FinalizeEx() == 0, "Py_FinalizeEx");
    return p.result();
}
