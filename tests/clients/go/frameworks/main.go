// Rate limits and locks as redis_rate and redsync keep them. Argument: port of a running server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const workers = 8

const patience = 60 * time.Second

var ctx = context.Background()

func check(holds bool, what ...any) {
	if !holds {
		fmt.Fprintln(os.Stderr, append([]any{"FAILED"}, what...)...)
		os.Exit(1)
	}
}

func must(err error) {
	check(err == nil, err)
}

func result[T any](value T, err error) T {
	must(err)
	return value
}

func together(work func()) {
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			work()
		}()
	}
	group.Wait()
}

func limitsHoldForConcurrentClients(client *redis.Client) {
	limiter := redis_rate.NewLimiter(client)
	// The next request is allowed an hour later.
	limit := redis_rate.Limit{Rate: 1, Burst: 100, Period: time.Hour}
	var mutex sync.Mutex
	allowed := 0
	together(func() {
		for request := 0; request < 20; request++ {
			reply := result(limiter.Allow(ctx, "user", limit))
			mutex.Lock()
			allowed += reply.Allowed
			mutex.Unlock()
		}
	})
	check(allowed == 100, "allowed requests", allowed)
	refused := result(limiter.Allow(ctx, "user", limit))
	check(refused.Allowed == 0 && refused.Remaining == 0, "refused", refused)
	check(refused.RetryAfter > 50*time.Minute && refused.RetryAfter <= time.Hour, refused.RetryAfter)
	check(refused.ResetAfter > 99*time.Hour && refused.ResetAfter <= 100*time.Hour, refused.ResetAfter)
	ttl := result(client.TTL(ctx, "rate:user").Result())
	check(ttl > 99*time.Hour && ttl <= 100*time.Hour, "ttl", ttl)
	another := result(limiter.AllowN(ctx, "another", limit, 60))
	check(another.Allowed == 60 && another.Remaining == 40, "another", another)
	check(result(limiter.AllowN(ctx, "another", limit, 60)).Allowed == 0, "more than remain")
	check(result(limiter.AllowAtMost(ctx, "another", limit, 60)).Allowed == 40, "at most")
	must(limiter.Reset(ctx, "user"))
	check(result(limiter.Allow(ctx, "user", limit)).Remaining == 99, "after a reset")
}

func limitsAllowAgainAfterAWhile(client *redis.Client) {
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 10, Burst: 1, Period: time.Second}
	check(result(limiter.Allow(ctx, "user", limit)).Allowed == 1, "allowed")
	deadline := time.Now().Add(patience)
	for {
		reply := result(limiter.Allow(ctx, "user", limit))
		if reply.Allowed == 1 {
			break
		}
		check(time.Now().Before(deadline), "it remains refused")
		time.Sleep(reply.RetryAfter)
	}
}

func locksExcludeAreExtendedAndReleased(client *redis.Client) {
	locks := redsync.New(goredis.NewPool(client))
	options := []redsync.Option{redsync.WithExpiry(time.Hour), redsync.WithTries(1)}
	first, second := locks.NewMutex("lock", options...), locks.NewMutex("lock", options...)
	must(first.Lock())
	var taken *redsync.ErrTaken
	err := second.Lock()
	check(errors.As(err, &taken), "lock of another", err)
	check(!second.Until().After(time.Now()), "until")
	must(client.Expire(ctx, "lock", time.Minute).Err())
	check(result(first.Extend()), "extended")
	check(result(client.TTL(ctx, "lock").Result()) > 50*time.Minute, "ttl")
	check(result(first.Unlock()), "unlocked")
	unlocked, err := first.Unlock()
	check(!unlocked && errors.Is(err, redsync.ErrLockAlreadyExpired), "twice unlocked", err)
	must(second.Lock())
	must(client.Set(ctx, "lock", "of another", 0).Err())
	extended, err := second.Extend()
	check(!extended && err != nil, "extended lock of another")
	unlocked, err = second.Unlock()
	check(!unlocked && err != nil, "unlocked lock of another")
	check(result(client.Get(ctx, "lock").Result()) == "of another", "lock of another")
}

func locksExpire(client *redis.Client) {
	locks := redsync.New(goredis.NewPool(client))
	retry := []redsync.Option{redsync.WithTries(6000), redsync.WithRetryDelay(10 * time.Millisecond)}
	brief := redsync.WithExpiry(100 * time.Millisecond)
	first := locks.NewMutex("lock", append(retry, brief)...)
	must(first.Lock())
	must(locks.NewMutex("lock", append(retry, redsync.WithExpiry(time.Hour))...).Lock())
	unlocked, err := first.Unlock()
	check(!unlocked && err != nil, "unlocked an expired lock")
	check(result(client.Exists(ctx, "lock").Result()) == 1, "lock of another")
}

func oneHasALockAtATime(client *redis.Client) {
	locks := redsync.New(goredis.NewPool(client))
	must(client.Set(ctx, "counter", 0, 0).Err())
	together(func() {
		for round := 0; round < 5; round++ {
			mutex := locks.NewMutex("lock", redsync.WithExpiry(time.Hour), redsync.WithTries(6000),
				redsync.WithRetryDelay(10*time.Millisecond))
			must(mutex.Lock())
			number := result(client.Get(ctx, "counter").Int())
			must(client.Set(ctx, "counter", number+1, 0).Err())
			check(result(mutex.Unlock()), "unlocked")
		}
	})
	check(result(client.Get(ctx, "counter").Int()) == 5*workers, "counter")
}

func main() {
	tests := []func(*redis.Client){
		limitsHoldForConcurrentClients, limitsAllowAgainAfterAWhile,
		locksExcludeAreExtendedAndReleased, locksExpire, oneHasALockAtATime,
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	for _, test := range tests {
		must(client.FlushAll(ctx).Err())
		test(client)
	}
	fmt.Println("redis_rate and redsync:", len(tests), "passed")
}
