/* command_status: asks a running peer how it is doing and prints the answer. */
#include "peer/command.h"

#include "base/mem.h"
#include "peer/keys.h"
#include "peer/observer.h"
#include "replica/json.h"

#include <string.h>

static const char *text_or_dash(const struct json *json, const char *key)
{
    const char *text = json_get_text(json, key);

    return text != NULL ? text : "-";
}

static void print_number(const struct json *json, const char *label, const char *key)
{
    double value;

    if (json_get_real(json, key, &value)) printf("%-20s %.6g\n", label, value);
}

static void print_member(const struct json *member)
{
    double rtt = 0, sent = 0, received = 0;

    (void)json_get_real(member, "rtt_ms", &rtt); /* null until measured: printed as 0 */
    (void)json_get_real(member, "bytes_sent", &sent);
    (void)json_get_real(member, "bytes_received", &received);
    printf("  %-10.8s %-22s %-8s %8.2f %10.1f %10.1f\n", text_or_dash(member, "id"),
           text_or_dash(member, "address"), text_or_dash(member, "state"), rtt, sent / 1e6,
           received / 1e6);
}

static void print_table(const struct json *json)
{
    const struct json *members = json_get(json, "members");

    printf("%-20s %s\n", "peer", text_or_dash(json, "peer"));
    printf("%-20s %s\n", "address", text_or_dash(json, "address"));
    printf("%-20s %s\n", "state", text_or_dash(json, "state"));
    printf("%-20s %s\n", "model", text_or_dash(json, "model"));
    printf("%-20s %s\n", "averaging", text_or_dash(json, "averaging"));
    print_number(json, "step", "step");
    print_number(json, "round", "round");
    print_number(json, "loss", "loss");
    print_number(json, "accuracy", "accuracy");
    print_number(json, "samples/s", "samples_per_s");
    print_number(json, "consensus distance", "consensus_distance");
    if (members == NULL || json_count(members) == 0) {
        printf("%-20s none\n", "members");
        return;
    }
    printf("%zu members\n  %-10s %-22s %-8s %8s %10s %10s\n", json_count(members), "id", "address",
           "state", "rtt ms", "sent MB", "recv MB");
    for (size_t i = 0; i < json_count(members); i++) {
        print_member(json_at(members, i));
    }
}

int command_status(struct options *options)
{
    struct swarm_secret secret;
    struct fault why = {""};
    struct json *json = NULL;
    char *text = NULL;
    size_t count;
    enum rc rc = secure_start();

    if (rc == RC_OK) {
        rc = keys_swarm(options_text(options, "swarm-name"), options_text(options, "swarm-key"),
                        &secret, &why);
    }
    if (rc == RC_OK) {
        rc = observer_status(options_arguments(options, &count)[0], &secret,
                             options_ns(options, "join-timeout"), &text, &why);
    }
    if (rc == RC_OK) rc = json_parse(text, strlen(text), &json, &why);
    mem_free(text);
    if (rc != RC_OK) {
        (void)command_failed(rc, &why);
        return EXIT_FAILED;
    }
    if (options_flag(options, "json")) {
        command_print_json(json);
        return EXIT_DONE;
    }
    print_table(json);
    json_destroy(json);
    return EXIT_DONE;
}
