// The stock module of testcontainers-go with the image under test: what a new group reads, as JSON.
// program IMAGE VALUE...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A bound for what hangs, not a measure.
const patience = 120 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, image string, values []string) (err error) {
	container, err := kafka.Run(ctx, image, kafka.WithClusterID("4L6g3nShT-eMCtK--X86sw"))
	defer func() {
		if ended := testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)); err == nil {
			err = ended
		}
	}()
	if err != nil {
		return err
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumerGroup("readers"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, value := range values {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
			return err
		}
	}
	found := []string{}
	for len(found) < len(values) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"cluster": container.ClusterID, "records": found})
}
