/*
 * answer: a listener that is no peer, for tests of bad bootstrap addresses. Takes a free loopback
 * port, prints it, and gives every caller the text of its argument, or, without one, nothing at
 * all.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(listener, 16) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0)
        return 1;
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        char heard[256];
        int caller = accept(listener, NULL, NULL);

        if (caller < 0) return 1;
        if (argc < 2) continue; /* the caller hangs: its socket stays open, unanswered */
        if (read(caller, heard, sizeof(heard)) < 0) perror("answer");
        if (write(caller, argv[1], strlen(argv[1])) < 0) perror("answer");
        close(caller);
    }
}
