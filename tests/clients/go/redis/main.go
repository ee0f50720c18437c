// Redis's protocol in both versions as go-redis speaks it. Argument: port of a running server.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const workers = 8

// Removes a lock if it has this token.
const release = `
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0
`

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

func stringsComeBack(client *redis.Client) {
	for _, length := range []int{0, 1, 255, 65536, 3_000_000} {
		value := bytes.Repeat([]byte{0, 13, 10, 255, 7}, length/5+1)[:length]
		must(client.Set(ctx, "bytes\r\n", value, 0).Err())
		found := result(client.Get(ctx, "bytes\r\n").Bytes())
		check(bytes.Equal(found, value), "value of", length)
	}
	_, err := client.Get(ctx, "missing").Result()
	check(errors.Is(err, redis.Nil), "a miss", err)
	check(result(client.SetNX(ctx, "once", "1", 0).Result()), "set of a new key")
	check(!result(client.SetNX(ctx, "once", "2", 0).Result()), "set of a present key")
	check(result(client.Append(ctx, "once", "23").Result()) == 3, "append")
	check(result(client.GetRange(ctx, "once", 1, -1).Result()) == "23", "getrange")
	must(client.MSet(ctx, "a", 1, "b", 2).Err())
	many := result(client.MGet(ctx, "a", "missing", "b").Result())
	check(many[0] == "1" && many[1] == nil && many[2] == "2", "mget", many)
	check(result(client.Del(ctx, "a", "b", "missing").Result()) == 2, "del")
}

func recordsExpire(client *redis.Client) {
	must(client.Set(ctx, "brief", "v", 50*time.Millisecond).Err())
	must(client.Set(ctx, "longer", "v", time.Hour).Err())
	check(result(client.TTL(ctx, "longer").Result()) > time.Minute, "ttl")
	check(result(client.Persist(ctx, "longer").Result()), "persist")
	check(result(client.TTL(ctx, "longer").Result()) == -1, "ttl of a lasting record")
	deadline := time.Now().Add(30 * time.Second)
	for client.Get(ctx, "brief").Err() != redis.Nil {
		check(time.Now().Before(deadline), "brief does not expire")
		time.Sleep(10 * time.Millisecond)
	}
}

func countersCountTogether(client *redis.Client) {
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for count := 0; count < 200; count++ {
				must(client.IncrBy(ctx, "counter", 3).Err())
			}
		}()
	}
	group.Wait()
	check(result(client.Decr(ctx, "counter").Result()) == workers*200*3-1, "counter")
	check(result(client.SetBit(ctx, "bits", 9, 1).Result()) == 0, "setbit")
	check(result(client.BitCount(ctx, "bits", nil).Result()) == 1, "bitcount")
}

func pipelinesAndTransactionsReply(client *redis.Client) {
	replies := result(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := 0; number < 2000; number++ {
			pipe.Set(ctx, fmt.Sprintf("k%d", number), number, 0)
		}
		return nil
	}))
	check(len(replies) == 2000, "replies of a pipeline", len(replies))
	// Each worker counts by GET and SET: a change between them begins the transaction again.
	must(client.Set(ctx, "watched", 0, 0).Err())
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for count := 0; count < 20; {
				err := client.Watch(ctx, addOne, "watched")
				check(err == nil || errors.Is(err, redis.TxFailedErr), err)
				if err == nil {
					count++
				}
			}
		}()
	}
	group.Wait()
	check(result(client.Get(ctx, "watched").Int()) == workers*20, "transactions")
}

func addOne(tx *redis.Tx) error {
	number, err := tx.Get(ctx, "watched").Int()
	if err != nil {
		return err
	}
	_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "watched", number+1, 0)
		return nil
	})
	return err
}

func scansFindEachKey(client *redis.Client) {
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "k*", 100).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	must(keys.Err())
	check(len(found) == 2000, "keys of a scan", len(found))
}

func messagesReachSubscribers(client *redis.Client) {
	listener := client.Subscribe(ctx, "news")
	defer listener.Close()
	must(listener.PSubscribe(ctx, "new*"))
	for confirmed := 0; confirmed < 2; confirmed++ {
		_ = result(listener.ReceiveTimeout(ctx, 30*time.Second)).(*redis.Subscription)
	}
	check(result(client.Publish(ctx, "news", "hello").Result()) == 2, "publish")
	for received := 0; received < 2; received++ {
		message := result(listener.ReceiveMessage(ctx))
		check(message.Channel == "news" && message.Payload == "hello", "message", message)
	}
}

func scriptsReleaseLocks(client *redis.Client) {
	must(client.ScriptFlush(ctx).Err())
	keys := []string{"lock"}
	check(result(client.SetNX(ctx, "lock", "token", time.Hour).Result()), "a lock")
	script := redis.NewScript(release)
	err := script.EvalSha(ctx, client, keys, "token").Err()
	check(redis.HasErrorPrefix(err, "NOSCRIPT"), "an unknown script", err)
	// EVALSHA is refused, so that go-redis sends EVAL.
	check(result(script.Run(ctx, client, keys, "another").Int()) == 0, "lock of another")
	check(result(script.EvalSha(ctx, client, keys, "token").Int()) == 1, "evalsha")
	check(result(client.Exists(ctx, "lock").Result()) == 0, "the lock is released")
}

func connectionsAreListed(client *redis.Client) {
	connection := client.Conn()
	defer connection.Close()
	id := result(connection.ClientID(ctx).Result())
	list := result(client.ClientList(ctx).Result())
	check(strings.Contains(list, fmt.Sprintf("id=%d ", id)), id, list)
	check(result(connection.ClientInfo(ctx).Result()).ID == id, "the connection's line")
}

func main() {
	tests := []func(*redis.Client){
		stringsComeBack, recordsExpire, countersCountTogether, pipelinesAndTransactionsReply,
		scansFindEachKey, messagesReachSubscribers, scriptsReleaseLocks, connectionsAreListed,
	}
	for _, version := range []int{2, 3} {
		address := "127.0.0.1:" + os.Args[1]
		client := redis.NewClient(&redis.Options{Addr: address, Protocol: version})
		must(client.FlushAll(ctx).Err())
		for _, test := range tests {
			test(client)
		}
		must(client.Close())
	}
	fmt.Println("go-redis:", 2*len(tests), "passed")
}
