// The service by Boost.Asio: one io_context that all threads run, a chain of reads and writes per connection.
// A chain is sequential, so it needs no strand.

#include <boost/asio.hpp>

#include "common.hpp"

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// One connection. It deletes itself at the end of its chain.
class Connection {
public:
    Connection(tcp::socket socket, std::uint32_t steps) : socket(std::move(socket)), steps(steps)
    {
        error_code ignored;
        this->socket.set_option(tcp::no_delay(true), ignored);
    }

    void read()
    {
        socket.async_read_some(asio::buffer(input.room(), input.length()),
            [this](error_code error, std::size_t count) {
                if (error)
                    delete this;
                else
                    reply(input.serve(count, steps));
            });
    }

private:
    void reply(std::size_t length)
    {
        if (length == 0)
            return read();
        asio::async_write(socket, asio::buffer(input.replies(), length),
            [this](error_code error, std::size_t) {
                if (error)
                    return delete this;
                input.sent();
                read();
            });
    }

    tcp::socket socket;
    Input input;
    std::uint32_t steps;
};

// Accepts for ever. When there is no descriptor for a connection, it pauses.
class Door {
public:
    Door(asio::io_context &context, const Setting &setting)
        : acceptor(context), pause(context), steps(setting.steps)
    {
        const tcp::endpoint address(asio::ip::make_address(setting.host), setting.port);
        acceptor.open(address.protocol());
        acceptor.set_option(tcp::acceptor::reuse_address(true));
        acceptor.bind(address);
        acceptor.listen(BACKLOG);
    }

    void accept()
    {
        acceptor.async_accept([this](error_code error, tcp::socket socket) {
            if (!error) {
                (new Connection(std::move(socket), steps))->read();
                return accept();
            }
            pause.expires_after(std::chrono::milliseconds(1));
            pause.async_wait([this](error_code) { accept(); });
        });
    }

    std::uint16_t port() const { return acceptor.local_endpoint().port(); }

private:
    tcp::acceptor acceptor;
    asio::steady_timer pause;
    std::uint32_t steps;
};

int main(int count, char **words)
{
    const Setting setting(count, words);
    raise_descriptors();
    asio::io_context context(static_cast<int>(setting.threads));
    Door door(context, setting);
    door.accept();
    for (std::size_t thread = 0; thread < setting.threads; ++thread)
        std::thread([&context] { context.run(); }).detach();
    answer(door.port());
}
