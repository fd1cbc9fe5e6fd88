/*
 * evil HOST:PORT BEHAVIOUR SECONDS [COUNT] [NAME] [KEYFILE]: attack the peer there, and tell in one
 * line what came of it. A behaviour that the other side can tell ends when it was hung up on (exit
 * 0), or when the time is over (exit 1); the others go on for the time, or until they are refused.
 * COUNT: connections to hold; NAME: of the swarm; KEYFILE: an identity to come with. Without
 * arguments: the list of them.
 */
#include "tests/e2e/evil/evil.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACT_NS (20 * NS_PER_MS)

static int list(void)
{
    for (size_t i = 0; i < behaviours_count; i++) {
        printf("%s %s %s\n", behaviours[i].name, behaviours[i].stranger ? "stranger" : "member",
               behaviours[i].is_dropped ? "dropped" : "endured");
    }
    return 0;
}

static const struct behaviour *find(const char *name)
{
    for (size_t i = 0; i < behaviours_count; i++) {
        if (strcmp(behaviours[i].name, name) == 0) return &behaviours[i];
    }
    return NULL;
}

/* How often was the third party dialled? */
static uint64_t victim_calls(const struct evil *evil)
{
    uint64_t calls = 0;
    int fd;

    while ((fd = accept(evil->victim_fd, NULL, NULL)) >= 0) {
        close(fd);
        calls++;
    }
    return calls;
}

static void run_member(struct evil *evil, const struct behaviour *behaviour, char *refusal)
{
    while (!evil_is_over(evil) && !(behaviour->is_dropped && evil->dropped > 0) &&
           refusal[0] == '\0') {
        struct member member;
        bool is_there = member_open(evil, &member);

        if (!is_there) {
            evil->refused++;
            if (member.refusal[0] != '\0') snprintf(refusal, ERROR_TEXT_MAX, "%s", member.refusal);
            evil_pause(100 * NS_PER_MS);
        }
        while (is_there && !evil_is_over(evil)) {
            member.acts++;
            behaviour->member(&member);
            is_there = member_listen(&member, ACT_NS);
            if (!is_there) evil->dropped++;
        }
        member_close(&member);
    }
}

static void set_up(struct evil *evil, char **argv, int argc)
{
    struct rlimit files;
    socklen_t bytes = sizeof evil->victim;
    const char *colon = strrchr(argv[1], ':');
    char host[64];

    CHECK(secure_start() == RC_OK && colon != NULL);
    snprintf(host, sizeof host, "%.*s", (int)(colon - argv[1]), argv[1]);
    evil->target.sin_family = evil->victim.sin_family = AF_INET;
    evil->target.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    CHECK(inet_pton(AF_INET, host, &evil->target.sin_addr) == 1);
    evil->victim.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    evil->victim_fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(evil->victim_fd, (struct sockaddr *)&evil->victim, bytes) == 0 &&
          listen(evil->victim_fd, 128) == 0 &&
          getsockname(evil->victim_fd, (struct sockaddr *)&evil->victim, &bytes) == 0);
    CHECK(fcntl(evil->victim_fd, F_SETFL, O_NONBLOCK) == 0);
    evil->count = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
    swarm_secret_derive(argc > 5 ? argv[5] : "default", NULL, &evil->swarm);
    if (argc > 6) {
        FILE *file = fopen(argv[6], "rb");
        char text[KEY_TEXT_MAX];
        size_t count = file == NULL ? 0 : fread(text, 1, sizeof text, file);

        CHECK(identity_parse(text, count, &evil->identity, NULL) == RC_OK);
        evil->has_identity = true;
        fclose(file);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        if (evil->count + 64 > files.rlim_cur) evil->count = (uint32_t)files.rlim_cur - 64;
    }
}

int main(int argc, char **argv)
{
    static struct evil evil;
    const struct behaviour *behaviour;
    char refusal[ERROR_TEXT_MAX] = "";
    uint64_t begun_ns = evil_now();
    double seconds;

    if (argc < 4) return list();
    behaviour = find(argv[2]);
    if (behaviour == NULL) {
        fprintf(stderr, "evil: there is no behaviour '%s'\n", argv[2]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    set_up(&evil, argv, argc);
    evil.end_ns = begun_ns + (uint64_t)(strtod(argv[3], NULL) * 1e9);
    if (behaviour->stranger != NULL) {
        behaviour->stranger(&evil);
    } else {
        run_member(&evil, behaviour, refusal);
    }
    seconds = (double)(evil_now() - begun_ns) / 1e9;
    printf("%s: %.2f s, %llu connections, %llu refused, %llu dropped, %llu sent (%.0f/s), "
           "victim called %llu times%s%s\n",
           behaviour->name, seconds, (unsigned long long)evil.connections,
           (unsigned long long)evil.refused, (unsigned long long)evil.dropped,
           (unsigned long long)evil.sent, (double)evil.sent / seconds,
           (unsigned long long)victim_calls(&evil), refusal[0] != '\0' ? "; " : "", refusal);
    return behaviour->is_dropped && evil.dropped == 0;
}
