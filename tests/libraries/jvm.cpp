// jvm.cpp - a JVM by JNI: made in a goroutine and entered by others, each wired and on its thread's stack, whose end
// the JVM protects and probes.
#include <jni.h>

#include "libraries/library.h"

namespace {

JavaVM* machine = nullptr;

// Calls a static method of the library's own classes; false: it threw what `expected` names.
jint parse(JNIEnv* env, int number) {
    const jclass integer = env->FindClass("java/lang/Integer");
    const jstring text = env->NewStringUTF(std::to_string(number).c_str());
    const jint value = env->CallStaticIntMethod(integer,
        env->GetStaticMethodID(integer, "parseInt", "(Ljava/lang/String;)I"), text);
    libraries::expect(!env->ExceptionCheck(), "parseInt throws");
    env->DeleteLocalRef(text);
    env->DeleteLocalRef(integer);
    return value;
}

bool threw(JNIEnv* env, const char* name) {
    const jthrowable thrown = env->ExceptionOccurred();
    env->ExceptionClear();
    return thrown && env->IsInstanceOf(thrown, env->FindClass(name));
}

void work(JNIEnv* env, int number) {
    for (int i = 0; i < 50; ++i) libraries::expect(parse(env, number * 100 + i) == number * 100 + i,
        "parseInt gives another number");
    if (!libraries::expect(env->PushLocalFrame(64) == 0, "PushLocalFrame")) return;
    // A null reference is a fault in the hardware first.
    const jclass arrays = env->FindClass("java/util/Arrays");
    env->CallStaticVoidMethod(arrays, env->GetStaticMethodID(arrays, "sort", "([I)V"), nullptr);
    libraries::expect(threw(env, "java/lang/NullPointerException"), "a null array was sorted");
    // Recursion: some that fits, and some that ends at the pages that the JVM has protected at the end of the stack.
    const jclass pattern = env->FindClass("java/util/regex/Pattern");
    const jmethodID matches = env->GetStaticMethodID(pattern, "matches",
        "(Ljava/lang/String;Ljava/lang/CharSequence;)Z");
    const jstring regex = env->NewStringUTF("(a|b)*");
    const jboolean good = env->CallStaticBooleanMethod(pattern, matches, regex,
        env->NewStringUTF(std::string(1000, 'a').c_str()));
    libraries::expect(!env->ExceptionCheck() && good, "1000 characters do not match");
    env->ExceptionClear();
    if (number % 20 == 0) {
        env->CallStaticBooleanMethod(pattern, matches, regex, env->NewStringUTF(std::string(1'000'000, 'a').c_str()));
        libraries::expect(threw(env, "java/lang/StackOverflowError"), "a million characters do not overflow the stack");
    }
    if (number % 10 == 0) {
        const jclass system = env->FindClass("java/lang/System");
        env->CallStaticVoidMethod(system, env->GetStaticMethodID(system, "gc", "()V"));
    }
    env->PopLocalFrame(nullptr);
}

void make() {
    JavaVMOption options[1]{};
    char heap[] = "-Xmx128m";
    options[0].optionString = heap;
    JavaVMInitArgs arguments{};
    arguments.version = JNI_VERSION_1_8;
    arguments.nOptions = 1;
    arguments.options = options;
    JNIEnv* env = nullptr;
    if (!libraries::expect(JNI_CreateJavaVM(&machine, reinterpret_cast<void**>(&env), &arguments) == JNI_OK,
        "no JVM")) return;
    const jclass system = env->FindClass("java/lang/System");
    const auto version = static_cast<jstring>(env->CallStaticObjectMethod(system,
        env->GetStaticMethodID(system, "getProperty", "(Ljava/lang/String;)Ljava/lang/String;"),
            env->NewStringUTF("java.vm.version")));
    const char* text = env->GetStringUTFChars(version, nullptr);
    std::printf("  java.vm.version %s\n", text);
    env->ReleaseStringUTFChars(version, text);
    machine->DetachCurrentThread();
}

}  // namespace

int main() {
    libraries::program p("JVM by JNI", std::chrono::seconds(180));
    dunlin::run([] {
        const dunlin::os_thread_lock wired;
        dunlin::on_thread_stack(make);
    });
    if (!machine) return 1;
    libraries::in_goroutines({.goroutines = 100, .rounds = 2}, [](int i, int) {
        const dunlin::os_thread_lock wired;
        JNIEnv* env = nullptr;
        dunlin::on_thread_stack([&] {
            if (libraries::expect(machine->AttachCurrentThread(reinterpret_cast<void**>(&env), nullptr) == JNI_OK,
                "not attached")) work(env, i);
        });
        if (!env) return;
        dunlin::sleep_for(std::chrono::milliseconds(1));
        dunlin::on_thread_stack([&] {
            libraries::expect(parse(env, i) == i, "parseInt gives another number after the goroutine has parked");
            libraries::expect(machine->DetachCurrentThread() == JNI_OK, "not detached");
        });
    });
    const int result = p.result();
    std::fflush(stdout);
    _exit(result);  // a JVM is not taken down
}
