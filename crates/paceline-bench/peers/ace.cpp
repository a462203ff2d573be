// The service by ACE's reactors, both of them Leader/Followers: --tp is the TP_Reactor (select), --dev-poll the
// Dev_Poll_Reactor (one-shot epoll). All threads run the reactor's event loop; while a handler is called its
// handle is suspended.

#include <ace/Dev_Poll_Reactor.h>
#include <ace/Event_Handler.h>
#include <ace/INET_Addr.h>
#include <ace/Reactor.h>
#include <ace/SOCK_Acceptor.h>
#include <ace/SOCK_Stream.h>
#include <ace/TP_Reactor.h>

#include <netinet/tcp.h>

#include "common.hpp"

// One connection. While the peer takes no replies it waits for room and reads nothing.
class Connection : public ACE_Event_Handler {
public:
    Connection(ACE_Reactor *reactor, const ACE_SOCK_Stream &stream, std::uint32_t steps)
        : ACE_Event_Handler(reactor), stream(stream), steps(steps)
    {
        reference_counting_policy().value(Reference_Counting_Policy::ENABLED);
        int on = 1;
        this->stream.set_option(IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        this->stream.enable(ACE_NONBLOCK);
    }

    ACE_HANDLE get_handle() const override { return stream.get_handle(); }

    int handle_input(ACE_HANDLE) override
    {
        const ssize_t count = stream.recv(input.room(), input.length());
        if (count <= 0)
            return count < 0 && errno == EWOULDBLOCK ? 0 : -1;
        unsent = input.serve(count, steps);
        next = input.replies();
        if (!send())
            return -1;
        return unsent == 0 ? 0 : wait_for(WRITE_MASK, READ_MASK);
    }

    int handle_output(ACE_HANDLE) override
    {
        if (!send())
            return -1;
        return unsent != 0 ? 0 : wait_for(READ_MASK, WRITE_MASK);
    }

    int handle_close(ACE_HANDLE, ACE_Reactor_Mask) override
    {
        const auto all = ALL_EVENTS_MASK | DONT_CALL;
        reactor()->remove_handler(this, all);
        stream.close();
        return 0;
    }

private:
    // Sends what is taken now; tells whether the connection goes on.
    bool send()
    {
        while (unsent != 0) {
            const ssize_t count = stream.send(next, unsent);
            if (count < 0)
                return errno == EWOULDBLOCK;
            next += count;
            unsent -= count;
        }
        input.sent();
        return true;
    }

    int wait_for(ACE_Reactor_Mask wanted, ACE_Reactor_Mask unwanted)
    {
        reactor()->cancel_wakeup(this, unwanted);
        return reactor()->schedule_wakeup(this, wanted) == -1 ? -1 : 0;
    }

    ACE_SOCK_Stream stream;
    Input input;
    const char *next = nullptr;
    std::size_t unsent = 0;
    std::uint32_t steps;
};

// The listening socket. A connection for which there is no descriptor waits, one for which there is no room in
// the reactor is closed.
class Door : public ACE_Event_Handler {
public:
    Door(ACE_Reactor *reactor, std::uint32_t steps) : ACE_Event_Handler(reactor), steps(steps) {}

    bool open(const Setting &setting)
    {
        const ACE_INET_Addr address(setting.port, setting.host.c_str());
        return acceptor.open(address, 1, PF_UNSPEC, BACKLOG) == 0 && acceptor.enable(ACE_NONBLOCK) == 0
            && reactor()->register_handler(this, ACCEPT_MASK) == 0;
    }

    std::uint16_t port() const
    {
        ACE_INET_Addr address;
        acceptor.get_local_addr(address);
        return address.get_port_number();
    }

    ACE_HANDLE get_handle() const override { return acceptor.get_handle(); }

    int handle_input(ACE_HANDLE) override
    {
        ACE_SOCK_Stream stream;
        if (acceptor.accept(stream) == -1) {
            if (errno == EMFILE || errno == ENFILE)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return 0;
        }
        // The reactor keeps it from here on, if it takes it; this reference is only ours.
        ACE_Event_Handler_var connection(new Connection(reactor(), stream, steps));
        if (reactor()->register_handler(connection.handler(), READ_MASK) == -1)
            stream.close();
        return 0;
    }

private:
    ACE_SOCK_Acceptor acceptor;
    std::uint32_t steps;
};

// The reactor that is asked for. Signals are not masked, which saves system calls; nothing here has handlers for
// them. Followers are woken in the order in which they came: the other order was no faster.
static ACE_Reactor_Impl *implementation(const std::string &name, std::size_t descriptors)
{
    if (name == "--tp")
        return new ACE_TP_Reactor(std::min<std::size_t>(descriptors, FD_SETSIZE), false, nullptr, nullptr, false);
    return new ACE_Dev_Poll_Reactor(descriptors, false, nullptr, nullptr, 0, nullptr, 0);
}

int main(int count, char **words)
{
    const Setting setting(count, words);
    ACE_Reactor reactor(implementation(setting.own, raise_descriptors()), true);
    Door door(&reactor, setting.steps);
    if (!door.open(setting)) {
        std::perror("ace: listen");
        return 1;
    }
    for (std::size_t thread = 0; thread < setting.threads; ++thread)
        std::thread([&reactor] { reactor.run_reactor_event_loop(); }).detach();
    answer(door.port());
}
