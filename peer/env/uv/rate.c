/*
 * uv_rate: the hard cap of a peer, each way, over all its links: token buckets above libuv.
 *
 * Sending. Links that only talk come first and may overdraw by one burst, so that no amount of bulk
 * holds them up; bulk links share what is left, a portion each in turns. Receiving. A link reads
 * its portion and stops; when there are tokens again, all that stopped get equal shares. What
 * nobody reads fills the kernel's buffer, kept small here (socket.c), and TCP slows the sender
 * down. One timer wakes up whoever waits. Loop thread only.
 */
#include "peer/env/uv/env.h"

#include "base/bytes.h"

static int64_t floor_of(const struct rate *rate, const struct tcp_link *link)
{
    return link->is_bulk ? 0 : -rate->burst;
}

static void on_rate_timer(uv_timer_t *timer);

static void wake_by(struct uv_env *env, uint64_t due_ns)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t delay_ms = due_ns > now_ns ? (due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 1;

    if (due_ns >= env->rate_due_ns) return;
    env->rate_due_ns = due_ns;
    uv_update_time(&env->loop);
    (void)uv_timer_start(&env->rate_timer, on_rate_timer, delay_ms, 0);
}

/* What it is worth waking up for: tokens that drip in are not written one by one. */
static size_t wanted(const struct rate *rate)
{
    size_t portion = rate_portion(rate), burst = (size_t)rate->burst;

    return portion < burst / 2 ? portion : burst / 2;
}

static void wait_for(struct uv_env *env, const struct rate *rate, const struct tcp_link *link)
{
    wake_by(env, rate_ready_ns(rate, floor_of(rate, link), (int64_t)wanted(rate)));
}

/* Everybody that stopped reading gets an equal share of what there is. */
static void readers_resume(struct uv_env *env)
{
    struct rate *rate = &env->receive_rate;
    uint64_t now_ns = uv_hrtime();
    struct tcp_link *link;
    size_t count = 0, share;

    TAILQ_FOREACH (link, &env->throttled, throttled) {
        count += rate_allows(rate, now_ns, floor_of(rate, link)) >= wanted(rate);
    }
    if (count == 0) return;
    share = rate_allows(rate, now_ns, 0) / count;
    if (share < RATE_BURST_BYTES_MIN / 2) share = RATE_BURST_BYTES_MIN / 2;
    for (struct tcp_link *next = TAILQ_FIRST(&env->throttled); (link = next) != NULL;) {
        next = TAILQ_NEXT(link, throttled);
        if (rate_allows(rate, now_ns, floor_of(rate, link)) < wanted(rate)) continue;
        uv_rate_forget(link);
        link->read_portion = share;
        tcp_link_read(link);
    }
}

static void on_rate_timer(uv_timer_t *timer)
{
    struct uv_env *env = timer->data;
    struct tcp_link *link;

    env->rate_due_ns = UINT64_MAX;
    readers_resume(env);
    TAILQ_FOREACH (link, &env->throttled, throttled) {
        wait_for(env, &env->receive_rate, link);
    }
    /* Those that wait to send have their turn in tcp_flush(), before the loop waits again. */
}

void uv_rate_init(struct uv_env *env, uint64_t bytes_per_s)
{
    rate_init(&env->send_rate, bytes_per_s, uv_hrtime());
    rate_init(&env->receive_rate, bytes_per_s, uv_hrtime());
    env->rate_due_ns = UINT64_MAX;
}

size_t uv_rate_may_send(struct uv_env *env, const struct tcp_link *link)
{
    struct rate *rate = &env->send_rate;
    size_t most;

    if (!rate_is_limited(rate)) return SIZE_MAX;
    most = rate_allows(rate, uv_hrtime(), floor_of(rate, link));
    if (most < wanted(rate) && most < link->queued_bytes) {
        wait_for(env, rate, link);
        return 0;
    }
    return most < rate_portion(rate) ? most : rate_portion(rate);
}

size_t uv_rate_may_read(struct tcp_link *link)
{
    struct rate *rate = &link->env->receive_rate;
    size_t most;

    if (!rate_is_limited(rate)) return SIZE_MAX;
    most = rate_allows(rate, uv_hrtime(), floor_of(rate, link));
    if (link->is_bulk) {
        if (most > link->read_portion) most = link->read_portion;
    } else if (most < wanted(rate)) {
        most = 0;
    }
    if (most > 0) return most;
    if (!link->is_throttled) {
        link->is_throttled = true;
        TAILQ_INSERT_TAIL(&link->env->throttled, link, throttled);
    }
    wait_for(link->env, rate, link);
    return 0;
}

void uv_rate_has_read(struct tcp_link *link, size_t count)
{
    rate_take(&link->env->receive_rate, count);
    link->read_portion = count < link->read_portion ? link->read_portion - count : 0;
}

void uv_rate_forget(struct tcp_link *link)
{
    if (link->is_throttled) TAILQ_REMOVE(&link->env->throttled, link, throttled);
    link->is_throttled = false;
}

bool uv_rate_has_room(const struct tcp_link *link, size_t count)
{
    const struct rate *rate = &link->env->send_rate;

    /* What waits here cannot be overtaken any more: a burst of it, or one frame of any size. */
    if (!rate_is_limited(rate) || link->queued_bytes == 0) return true;
    return count <= (size_t)rate->burst && link->queued_bytes <= (size_t)rate->burst - count;
}
