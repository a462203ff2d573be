// What the C++ peers have in common: the service, the command line, and what a server has to do with the
// process that started it. The same as src/service.rs and src/serve.rs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <sys/resource.h>

// The length of a request, and of a reply.
constexpr std::size_t REQUEST = 64;

// The length of a connection's buffer: what one read may bring.
constexpr std::size_t ROOM = 4096;

// How many connections may wait to be accepted.
constexpr int BACKLOG = 4096;

// A chain of dependent multiplications. The barrier goes through memory, as the one of the other servers does,
// so that a step takes the same time.
[[gnu::noinline]] inline void compute(std::uint32_t steps)
{
    std::uint64_t state = 1;
    for (std::uint32_t step = 0; step < steps; ++step) {
        asm volatile("" : : "r"(&state) : "memory");
        state = state * 6364136223846793005u + 1442695040888963407u;
    }
    asm volatile("" : : "r"(&state) : "memory");
}

// How many steps of `compute` take 20 us here: by the fastest of several tries.
inline std::uint32_t steps_of_20us()
{
    using clock = std::chrono::steady_clock;
    constexpr std::uint32_t steps = 50'000;
    auto fastest = clock::duration::max();
    for (int tries = 0; tries < 64; ++tries) {
        const auto start = clock::now();
        compute(steps);
        fastest = std::min(fastest, clock::now() - start);
    }
    const double seconds = std::chrono::duration<double>(fastest).count();
    return std::max<std::uint32_t>(1, steps * 20e-6 / seconds);
}

// Does what one request asks for, on this thread.
inline void perform(const char *request, std::uint32_t steps)
{
    switch (request[0]) {
    case 1: return compute(steps);
    case 2: return std::this_thread::sleep_for(std::chrono::milliseconds(5));
    case 3: return std::this_thread::sleep_for(std::chrono::microseconds(200));
    default: return;
    }
}

// The input of one connection: whole requests in front, then the beginning of one.
class Input {
public:
    // Where the next read goes, and how much room there is.
    char *room() { return bytes + filled; }
    std::size_t length() const { return ROOM - filled; }

    // Does what the whole requests ask for, after a read of so many bytes; tells how long they are. They are
    // their own replies.
    std::size_t serve(std::size_t count, std::uint32_t steps)
    {
        filled += count;
        whole = filled - filled % REQUEST;
        for (std::size_t request = 0; request < whole; request += REQUEST)
            perform(bytes + request, steps);
        return whole;
    }

    const char *replies() const { return bytes; }

    // The replies are sent: what is left moves to the front.
    void sent()
    {
        filled -= whole;
        if (filled != 0)
            std::memmove(bytes, bytes + whole, filled);
    }

private:
    char bytes[ROOM];
    std::size_t filled = 0;
    std::size_t whole = 0;
};

// What is asked for on the command line.
struct Setting {
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;
    std::size_t threads = 8;
    std::uint32_t steps = 0;
    // What only this peer knows, if it is given.
    std::string own;

    Setting(int count, char **words)
    {
        for (int at = 1; at < count; ++at) {
            const std::string word = words[at];
            const bool has_value = at + 1 < count;
            if (word == "--listen" && has_value)
                listen(words[++at]);
            else if (word == "--threads" && has_value)
                threads = std::max(1, std::atoi(words[++at]));
            else if (word == "--steps" && has_value)
                steps = std::atoi(words[++at]);
            else if (word != "--announced" && word != "--count") // Neither has an effect here.
                own = word;
        }
        if (steps == 0)
            steps = steps_of_20us();
    }

private:
    void listen(const std::string &address)
    {
        const auto colon = address.rfind(':');
        host = address.substr(0, colon);
        port = std::atoi(address.c_str() + colon + 1);
    }
};

// As many descriptors as this process may have; tells how many.
inline std::size_t raise_descriptors()
{
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

// Tells where it listens, then answers each line with counts, of which it has none; at the end of the input the
// process ends.
[[noreturn]] inline void answer(std::uint16_t port)
{
    std::printf("listening on 127.0.0.1:%u\n", port);
    std::fflush(stdout);
    for (int byte; (byte = std::getchar()) != EOF;) {
        if (byte == '\n') {
            std::puts("{\"allocations\":null,\"events\":null,\"same_thread\":null,"
                      "\"leaderless_us\":null,\"longest_leaderless_us\":null}");
            std::fflush(stdout);
        }
    }
    std::_Exit(0);
}
