// Counters of page views by day, read in one pipeline, by go-redis.
//
//	go mod init counters && go get github.com/redis/go-redis/v9
//	go run counters.go redis://127.0.0.1:1978
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const kept = 30 * 24 * time.Hour

func key(day time.Time) string {
	return "views:" + day.Format("2006-01-02")
}

// view counts a page view; the counter of a day is removed after a month.
func view(ctx context.Context, client *redis.Client, day time.Time) error {
	_, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, key(day))
		pipe.ExpireNX(ctx, key(day), kept)
		return nil
	})
	return err
}

func main() {
	url := "redis://127.0.0.1:1978"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		log.Fatal(err)
	}
	client, ctx := redis.NewClient(options), context.Background()
	defer client.Close()

	today := time.Now()
	client.Del(ctx, key(today))
	var group sync.WaitGroup
	for visitor := 0; visitor < 100; visitor++ {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := view(ctx, client, today); err != nil {
				log.Fatal(err)
			}
		}()
	}
	group.Wait()

	days, err := client.MGet(ctx, key(today), key(today.AddDate(0, 0, -1))).Result()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("views today and yesterday:", days)
}
