/* The hello of a peer, and the same bytes as a key file. Keys are fixed; see the corpus for one
 * that verifies. */
#include "base/check.h"
#include "gossip/signed/hello.h"
#include "gossip/wire/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[PUBLIC_KEY_BYTES] = "the static key of the fuzz";
    struct digest run_id = {{1, 2, 3}};
    struct identity identity;
    uint8_t swarm_key[SECRET_BYTES];
    struct fault why = {""};
    struct hello hello;

    if (secure_start() != RC_OK) return 0;
    if (hello_decode(data, size, run_id, key, &hello) == RC_OK) {
        CHECK(hello.role <= HELLO_OBSERVER);
        CHECK(hello.observed[0] == '\0' || address_is_valid(hello.observed));
        CHECK(strnlen(hello.spec, sizeof hello.spec) < sizeof hello.spec);
    }
    if (identity_parse((const char *)data, size, &identity, &why) != RC_OK) {
        CHECK(why.text[0] != '\0');
    }
    if (swarm_key_parse((const char *)data, size, swarm_key, &why) == RC_OK) {
        char text[KEY_TEXT_MAX];

        swarm_key_format(swarm_key, text, sizeof text);
        CHECK(swarm_key_parse(text, strlen(text), swarm_key, NULL) == RC_OK);
    }
    return 0;
}
