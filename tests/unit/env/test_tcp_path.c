/* tcp_path: what is asked of the kernel, of connections over loopback. */
#include "tests/check.h"

#include "peer/env/tcp_path.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Two ends of a connection that has carried a byte each way. */
static void tcp_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t count = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 'x';

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &count), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&address, sizeof address), 0);
    ends[1] = accept(listener, NULL, NULL);
    assert_true(ends[1] >= 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(ends[i], &byte, 1), 1);
        assert_int_equal(read(ends[1 - i], &byte, 1), 1);
    }
    close(listener);
}

static bool use(int socket, const char *name)
{
    return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

static void only_bbr_bears_loss(void **state)
{
    int ends[2];

    (void)state;
    tcp_pair(ends);
    if (use(ends[0], "reno")) assert_true(tcp_path_fears_loss(ends[0]));
    if (use(ends[0], "cubic")) assert_true(tcp_path_fears_loss(ends[0]));
    if (use(ends[0], "bbr")) assert_false(tcp_path_fears_loss(ends[0]));
    close(ends[0]);
    close(ends[1]);
}

/* In nanoseconds, whichever the kernel's unit: loopback takes more than some of them. */
static void the_round_trip_is_known_or_nothing(void **state)
{
    int ends[2], other = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)state;
    tcp_pair(ends);
    for (int i = 0; i < 2; i++) {
        uint64_t ns = tcp_path_round_trip_ns(ends[i]);

        printf("round trip: %llu us\n", (unsigned long long)(ns / 1000));
        assert_int_equal(ns % 1000, 0);
        assert_true(ns < UINT64_C(600000000000));
        close(ends[i]);
    }
    assert_int_equal(tcp_path_round_trip_ns(other), 0);
    assert_false(tcp_path_fears_loss(other));
    close(other);
    assert_int_equal(tcp_path_round_trip_ns(other), 0);
    assert_false(tcp_path_fears_loss(other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_bbr_bears_loss),
        cmocka_unit_test(the_round_trip_is_known_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
