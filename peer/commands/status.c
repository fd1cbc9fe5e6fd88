/* command_status: asks a running peer how it is doing and prints the answer; `top` goes on asking.
 */
#include "peer/cli/command.h"

#include "base/json.h"
#include "base/mem.h"
#include "gossip/wire/address.h"
#include "peer/env/env.h"
#include "peer/files/keys.h"
#include "peer/watch/observer.h"
#include "peer/watch/status_http.h"
#include "peer/watch/status_view.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct screen {
    bool is_json;
    bool is_terminal; /* drawn over, not one below the other */
    uint64_t left;    /* answers yet to be shown; UINT64_MAX: no end */
    enum rc rc;
    struct fault why;
};

static enum rc prepare(const struct options *options, struct swarm_secret *secret,
                       struct observer_options *observer, struct fault *why)
{
    size_t count;
    enum rc rc = secure_start();

    if (rc != RC_OK) return fault_set(why, rc, "libsodium does not start; reinstall it");
    if (!address_is_valid(options_arguments(options, &count)[0])) {
        return fault_set(
            why, RC_USAGE,
            "%s: not HOST:PORT; write it like 127.0.0.1:7077, the address that the peer "
            "listens on or that of its --http",
            options_arguments(options, &count)[0]);
    }
    *observer = (struct observer_options){.address = options_arguments(options, &count)[0],
                                          .swarm = secret,
                                          .identity = options_text(options, "identity"),
                                          .certificate = options_text(options, "certificate"),
                                          .way = command_way(options),
                                          .timeout_ns = options_ns(options, "join-timeout")};
    return keys_swarm(options_text(options, "swarm-name"), options_text(options, "swarm-key"),
                      secret, why);
}

/* The address may be that of the status page: a peer has half of the time to let us in, and what is
 * left of all of it is for the page, which is asked straight, or not at all. */
static enum rc ask(struct observer_options *observer, char **text, struct fault *why)
{
    uint64_t until_ns = uv_clock_ns() + observer->timeout_ns;
    enum rc rc;

    observer->open_ns = observer->timeout_ns / 2;
    rc = observer_status(observer, text, why);
    if (rc == RC_OK || rc == RC_CANCELLED) return rc;
    if (observer->way.proxy != NULL || observer->way.dial_command != NULL) return rc;
    return status_http_fetch(observer->address, until_ns, text) == RC_OK ? RC_OK : rc;
}

/* Zeros: no terminal. */
static struct winsize screen_size(void)
{
    struct winsize size = {.ws_row = 0};

    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    return size;
}

static bool has_alarms(const struct json *status)
{
    const struct json *alarms = json_get(status, "alarms");

    return alarms != NULL && json_count(alarms) > 0;
}

int command_status(struct options *options)
{
    struct swarm_secret secret = {.is_public = true};
    struct observer_options observer;
    struct fault why = {""};
    struct json *json = NULL;
    char *text = NULL;
    enum rc rc = prepare(options, &secret, &observer, &why);

    if (rc == RC_OK) rc = ask(&observer, &text, &why);
    mem_wipe(&secret, sizeof secret);
    if (rc == RC_OK) rc = json_parse(text, strlen(text), &json, &why);
    mem_free(text);
    if (rc != RC_OK) {
        const int code = command_failed(rc, &why);
        return rc == RC_USAGE ? code : EXIT_FAILED;
    }
    const bool is_check = options_flag(options, "check");
    const int code = is_check && has_alarms(json) ? EXIT_ALARM : EXIT_DONE;
    if (options_flag(options, "json")) {
        command_print_json(json);
        return code;
    }
    if (is_check) {
        status_print_alarms(stdout, json);
    } else {
        status_print(stdout, json, screen_size().ws_col, 0);
    }
    json_destroy(json);
    return code;
}

static void draw(const struct json *json)
{
    struct winsize size = screen_size();

    fputs("\033[H\033[J", stdout);
    status_print(stdout, json, size.ws_col, size.ws_row > 0 ? size.ws_row - 1u : 0);
}

static bool on_status(void *context, const char *text, size_t bytes)
{
    struct screen *screen = context;
    struct json *json = NULL;

    screen->rc = json_parse(text, bytes, &json, &screen->why);
    if (screen->rc != RC_OK) return false;
    if (screen->is_json) {
        command_print_json(json);
    } else if (screen->is_terminal) {
        draw(json);
        json_destroy(json);
    } else {
        status_print(stdout, json, 0, 0);
        json_destroy(json);
    }
    fflush(stdout);
    return ferror(stdout) == 0 && (screen->left == UINT64_MAX || --screen->left > 0);
}

int command_top(struct options *options)
{
    struct swarm_secret secret = {.is_public = true};
    struct observer_options observer;
    struct fault why = {""};
    struct screen screen = {.is_json = options_flag(options, "json"),
                            .is_terminal = isatty(STDOUT_FILENO) == 1,
                            .left = UINT64_MAX};
    enum rc rc = prepare(options, &secret, &observer, &why);

    if (options_is_set(options, "times")) screen.left = options_count(options, "times");
    observer.stop = command_watch_stop();
    if (rc == RC_OK) {
        rc = observer_watch(&observer, options_ns(options, "every"), on_status, &screen, &why);
    }
    mem_wipe(&secret, sizeof secret);
    if (rc == RC_CANCELLED) return EXIT_DONE; /* that is how one leaves it */
    if (rc == RC_OK && screen.rc != RC_OK) {
        rc = screen.rc;
        why = screen.why;
    }
    if (rc == RC_OK) return EXIT_DONE;
    const int code = command_failed(rc, &why);
    return rc == RC_USAGE ? code : EXIT_FAILED;
}
