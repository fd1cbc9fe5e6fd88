/* The status page, fetched from servers that are no status page, or a bad one. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/env/env.h"
#include "peer/watch/status_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DRIP_MS = 20 };

/* Until it is killed: accept, say `first`, then a byte now and then; NULL: nothing at all. */
static void serve(int listener, const char *first)
{
    int fd = accept(listener, NULL, NULL);

    if (first != NULL) (void)!write(fd, first, strlen(first));
    for (;;) {
        (void)poll(NULL, 0, DRIP_MS);
        if (first != NULL && send(fd, "x", 1, MSG_NOSIGNAL) != 1) (void)pause();
    }
}

static enum rc fetch(const char *first, uint64_t timeout_ns, bool is_closing)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t bytes = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    char address[64], *text = NULL;
    pid_t child;
    enum rc rc;

    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, bytes), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &bytes), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(name.sin_port));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (is_closing) {
            int fd = accept(listener, NULL, NULL);
            char asked[512];

            (void)!read(fd, asked, sizeof asked);
            (void)!write(fd, first, strlen(first));
            _exit(0);
        }
        serve(listener, first);
    }
    (void)close(listener);
    rc = status_http_fetch(address, uv_clock_ns() + timeout_ns, &text);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    if (rc == RC_OK) assert_string_equal(text, "{}");
    mem_free(text);
    assert_int_equal(mem_blocks(), 0);
    return rc;
}

/* The time is for all of the answer, however it comes in pieces: this ends. */
static void the_time_is_for_all_of_the_answer(void **state)
{
    (void)state;
    assert_int_equal(fetch("HTTP/1.0 200 OK\r\n\r\n", 300 * NS_PER_MS, false), RC_IO);
    assert_int_equal(fetch(NULL, 300 * NS_PER_MS, false), RC_IO);
    assert_int_equal(fetch("HTTP/1.0 200 OK\r\n\r\n{}", 0, true), RC_IO);
}

static void a_page_is_what_its_first_line_says(void **state)
{
    (void)state;
    assert_int_equal(fetch("HTTP/1.0 200 OK\r\n\r\n{}", 60 * NS_PER_S, true), RC_OK);
    assert_int_equal(fetch("HTTP/1.0 404 No\r\n\r\n{}", 60 * NS_PER_S, true), RC_FORMAT);
    assert_int_equal(fetch("GRPV", 60 * NS_PER_S, true), RC_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_is_for_all_of_the_answer),
        cmocka_unit_test(a_page_is_what_its_first_line_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
