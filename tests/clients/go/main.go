// The memcached text protocol as gomemcache speaks it.
//
// Argument: port of a running server.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const workers = 8

func check(holds bool, what ...any) {
	if !holds {
		fmt.Fprintln(os.Stderr, append([]any{"FAILED"}, what...)...)
		os.Exit(1)
	}
}

func must(err error) {
	check(err == nil, err)
}

func get(client *memcache.Client, key string) *memcache.Item {
	item, err := client.Get(key)
	must(err)
	return item
}

func valuesComeBack(client *memcache.Client) {
	for _, length := range []int{0, 1, 255, 65536, 900_000} {
		value := bytes.Repeat([]byte{0, 13, 10, 255, 7}, length/5+1)[:length]
		must(client.Set(&memcache.Item{Key: "bytes", Value: value, Flags: 4294967295}))
		item := get(client, "bytes")
		check(bytes.Equal(item.Value, value) && item.Flags == 4294967295, "value of", length)
	}
	_, err := client.Get("missing")
	check(errors.Is(err, memcache.ErrCacheMiss), "a miss", err)
}

func storesLook(client *memcache.Client) {
	item := func(value string) *memcache.Item {
		return &memcache.Item{Key: "once", Value: []byte(value)}
	}
	must(client.Add(item("b")))
	check(errors.Is(client.Add(item("x")), memcache.ErrNotStored), "add over a record")
	must(client.Append(item("c")))
	must(client.Prepend(item("a")))
	check(string(get(client, "once").Value) == "abc", "append and prepend")
	must(client.Replace(item("d")))
	missing := &memcache.Item{Key: "never", Value: []byte("x")}
	check(errors.Is(client.Replace(missing), memcache.ErrNotStored), "replace of nothing")
}

func casStoresOverWhatWasRead(client *memcache.Client) {
	must(client.Set(&memcache.Item{Key: "swapped", Value: []byte("1")}))
	one, other := get(client, "swapped"), get(client, "swapped")
	one.Value, other.Value = []byte("2"), []byte("3")
	must(client.CompareAndSwap(one))
	check(errors.Is(client.CompareAndSwap(other), memcache.ErrCASConflict), "cas over a change")
	check(string(get(client, "swapped").Value) == "2", "cas")
}

func manyAtOnce(client *memcache.Client) {
	keys := []string{"many-missing"}
	for number := 0; number < 500; number++ {
		key := fmt.Sprintf("many-%d", number)
		must(client.Set(&memcache.Item{Key: key, Value: []byte(key)}))
		keys = append(keys, key)
	}
	items, err := client.GetMulti(keys)
	must(err)
	check(len(items) == 500, "get of many", len(items))
	for key, item := range items {
		check(string(item.Value) == key, "value of", key)
	}
	must(client.Delete("many-1"))
	check(errors.Is(client.Delete("many-1"), memcache.ErrCacheMiss), "a second deletion")
}

func countersCountTogether(client *memcache.Client) {
	must(client.Set(&memcache.Item{Key: "counter", Value: []byte("0")}))
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for count := 0; count < 200; count++ {
				_, err := client.Increment("counter", 3)
				must(err)
			}
		}()
	}
	group.Wait()
	sum, err := client.Decrement("counter", 1)
	must(err)
	check(sum == workers*200*3-1, "counter", sum)
	sum, err = client.Decrement("counter", 1<<40)
	must(err)
	check(sum == 0, "it stops at 0")
	_, err = client.Increment("counter-missing", 1)
	check(errors.Is(err, memcache.ErrCacheMiss), "a counter that is not there")
}

func recordsExpire(client *memcache.Client) {
	must(client.Set(&memcache.Item{Key: "brief", Value: []byte("v"), Expiration: 1}))
	must(client.Set(&memcache.Item{Key: "longer", Value: []byte("v"), Expiration: 1000}))
	must(client.Touch("longer", 1))
	check(errors.Is(client.Touch("missing", 1), memcache.ErrCacheMiss), "touch of nothing")
	deadline := time.Now().Add(30 * time.Second)
	for _, key := range []string{"brief", "longer"} {
		for {
			_, err := client.Get(key)
			if errors.Is(err, memcache.ErrCacheMiss) {
				break
			}
			must(err)
			check(time.Now().Before(deadline), key, "does not expire")
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func flushRemovesEverything(client *memcache.Client) {
	must(client.Set(&memcache.Item{Key: "flushed", Value: []byte("v")}))
	must(client.FlushAll())
	_, err := client.Get("flushed")
	check(errors.Is(err, memcache.ErrCacheMiss), "flush_all", err)
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	client.Timeout = 10 * time.Second
	client.MaxIdleConns = workers
	must(client.Ping())
	tests := []func(*memcache.Client){
		valuesComeBack, storesLook, casStoresOverWhatWasRead, manyAtOnce, countersCountTogether,
		recordsExpire, flushRemovesEverything,
	}
	for _, test := range tests {
		test(client)
	}
	fmt.Println("gomemcache:", len(tests), "passed")
}
