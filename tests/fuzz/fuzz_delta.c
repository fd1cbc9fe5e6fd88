/* Any bytes as what members of a group send each other of differences: refused, or read within
 * their bounds, and what comes of them is a number. */
#include "averaging/codec/delta.h"
#include "base/check.h"
#include "base/floats.h"

enum { VALUES = 100 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void look_at_mean(const struct codec *codec, const uint8_t *bytes, size_t count,
                         uint32_t self, struct delta_how how)
{
    static float out[VALUES], scratch[VALUES], senders[VALUES];
    struct delta_body bodies[GROUP_MEMBERS_MAX];
    struct delta_mean mean;
    const size_t plane = VALUES * sizeof(float);
    uint32_t members;

    if (delta_mean_parse(codec, bytes, count, VALUES, self, &mean) != RC_OK) return;
    CHECK(delta_is_mean(codec, VALUES, count));
    CHECK(mean.state >= mean.bodies && mean.state + mean.planes * plane == bytes + count);
    if (mean.is_whole || (mean.members >> self & 1) != 0) return;
    members = delta_bodies(&mean, self, (struct delta_body){NULL, 0}, bodies);
    CHECK(members > 0 && bodies[members - 1].bytes + bodies[members - 1].count == mean.state);
    if (delta_mean_of(codec, bodies, members, VALUES, how, out, scratch, senders) != RC_OK) return;
    CHECK(floats_are_finite(out, VALUES));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const names[] = {"topk:0.01", "topk:0.1", "topk:0.25|int8",   "f32", "f16",
                                        "bf16",      "int8",     "topk:64/4096|int2"};
    struct codec codec;
    struct delta_offer offer;

    if (count < 2) return 0;
    CHECK(codec_find(names[bytes[0] % 8], &codec, NULL) == RC_OK);
    look_at_mean(&codec, bytes + 2, count - 2, bytes[1] % GROUP_MEMBERS_MAX,
                 (struct delta_how){bytes[1] >= 128, bytes[0] >= 128});
    if (delta_offer_parse(&codec, bytes + 2, count - 2, VALUES, &offer) != RC_OK) return 0;
    CHECK(delta_is_offer(&codec, VALUES, count - 2));
    CHECK(offer.body + offer.body_bytes == bytes + count);
    return 0;
}
