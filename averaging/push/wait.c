/*
 * How long a push round waits, and for whom (times.h). Who promises a share holds the round it is
 * to count in, and with it a trainer that waits for rounds; so the first chunk is expected as soon
 * as first chunks use to come, and who breaks its word is put off for twice as long as it held us,
 * twice that the next time, and so on, up to 128 times or an hour: what it can take of our time
 * grows with the logarithm of time at first, and is less than a hundredth of it later. We send it
 * nothing either meanwhile: a peer whose uplink is slow would gather the weight that it cannot
 * give. KEPT_FOR_ONE promises that are kept make up for one that was not, so good shares in between
 * buy it little. Shares that came teach how long to wait, late ones only if their sender is proven:
 * strangers could teach us any patience. But where nobody's promise is kept any more, it may be
 * that all have become slower than we learned: after BROKEN_MOST in a row that is forgotten;
 * strangers' promises do not count for this while shares of proven peers come. Loop thread; pure.
 */
#include "averaging/push/push.h"

#include "averaging/core/times.h"

enum { TIMES_MOST = 6, KEPT_FOR_ONE = 4, BROKEN_MOST = 8 };

uint64_t push_answer_wait_ns(const struct push *push, struct peer_id peer)
{
    const struct awaited answer = {&times_answer, &push->answers, 1, 0};

    return exchange_wait_ns(&push->options, peer, &answer);
}

uint64_t push_share_wait_ns(const struct push *push, struct peer_id peer)
{
    const struct awaited share = {&times_plane, &push->rounds, 0, push->options.chunks};

    return exchange_wait_ns(&push->options, peer, &share);
}

static bool has_sent_nothing(const struct push *push)
{
    return push->receiving.granted > 0 && push->receiving.received == 0;
}

uint64_t push_in_deadline_ns(const struct push *push)
{
    const struct awaited chunk = {&times_chunk, &push->firsts, 0, 1};
    uint64_t first_ns;

    if (!has_sent_nothing(push)) return push->in_deadline_ns;
    first_ns = deadline_after(push->in_granted_ns,
                              exchange_wait_ns(&push->options, push->from.id, &chunk));
    return deadline_least(first_ns, push->in_deadline_ns);
}

/* ---- who kept us waiting ---- */

static const struct push_put_off *put_off_find(const struct push *push, struct peer_id id)
{
    for (uint32_t i = 0; i < PUSH_PUT_OFF_MAX; i++) {
        const struct push_put_off *one = &push->put_off[i];

        if (one->until_ns != 0 && peer_id_is_equal(one->id, id)) return one;
    }
    return NULL;
}

/* Its entry, or the one that is over first. */
static struct push_put_off *put_off_make(struct push *push, struct peer_id id)
{
    const struct push_put_off *found = put_off_find(push, id);
    struct push_put_off *first = &push->put_off[0];

    if (found != NULL) return &push->put_off[found - push->put_off];
    for (uint32_t i = 1; i < PUSH_PUT_OFF_MAX; i++) {
        if (push->put_off[i].until_ns < first->until_ns) first = &push->put_off[i];
    }
    *first = (struct push_put_off){.id = id};
    return first;
}

/* Of a share that is late. */
static void learn_from_late(struct push *push, uint64_t held_ns)
{
    if (!exchange_is_proven(&push->options, push->from.id)) return;
    if (has_sent_nothing(push)) { /* it says nothing of how long shares take */
        deadline_add(&push->firsts, 2 * (push->now_ns - push->in_granted_ns));
    } else {
        deadline_add(&push->rounds, 2 * held_ns);
    }
}

/* Has a share of a proven peer come lately? Then strangers do not make us forget what it took. */
static bool serves_proven(const struct push *push)
{
    return push->proven_ns != 0 &&
           push->now_ns < deadline_after(push->proven_ns, times_plane.cap_ns);
}

/* Capped, but for who holds us for so long that an hour is no penalty. */
static uint64_t put_off_ns(uint64_t held_ns, uint32_t times)
{
    return deadline_least(2 * held_ns << times, deadline_most(32 * held_ns, PUT_OFF_MOST_NS));
}

void push_kept_waiting(struct push *push)
{
    struct push_put_off *one = put_off_make(push, push->from.id);
    uint64_t held_ns = push->now_ns - push->in_begun_ns;

    one->until_ns = deadline_after(push->now_ns, put_off_ns(held_ns, one->times));
    if (one->times < TIMES_MOST) one->times++;
    one->kept = 0;
    learn_from_late(push, held_ns);
    if (!exchange_is_proven(&push->options, push->from.id) && serves_proven(push)) return;
    if (++push->broken < BROKEN_MOST) return;
    push->broken = 0;
    push->rounds = push->firsts = (struct deadline){.count = 0};
}

void push_has_come(struct push *push)
{
    const struct push_put_off *found = put_off_find(push, push->from.id);
    struct push_put_off *one;

    push->broken = 0;
    if (exchange_is_proven(&push->options, push->from.id)) push->proven_ns = push->now_ns;
    deadline_add(&push->rounds, push->now_ns - push->in_begun_ns);
    deadline_add(&push->firsts, push->in_first_ns);
    if (found == NULL) return;
    one = &push->put_off[found - push->put_off];
    if (++one->kept < KEPT_FOR_ONE) return;
    one->kept = 0;
    if (--one->times == 0) *one = (struct push_put_off){.times = 0};
}

bool push_is_put_off(const struct push *push, struct peer_id peer)
{
    const struct push_put_off *found = put_off_find(push, peer);

    return found != NULL && push->now_ns < found->until_ns;
}
