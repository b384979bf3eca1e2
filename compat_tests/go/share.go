// The mode "share": franz-go as a member of a share group, with the arguments and the output of ShareProgram.java.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// shareMember consumes until it has seen so many records, and prints each with its delivery count. The arguments are
// the bootstrap servers, a topic, a group, the number of records and the mode.
func shareMember(bootstrap, topic, group, records, mode string) error {
	wanted, err := strconv.Atoi(records)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var refused error
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				refused = err
			}
		}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; seen < wanted; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, failed := range fetches.Errors() {
			return failed.Err
		}
		for _, record := range fetches.Records() {
			seen++
			fmt.Fprintln(os.Stdout, record.Partition, string(record.Value), record.DeliveryCount())
			value, err := strconv.Atoi(string(record.Value))
			if err != nil {
				return err
			}
			switch {
			case mode == "odd" && record.DeliveryCount() == 1 && value%2 == 1:
				record.Ack(kgo.AckRelease)
			case mode == "reject" && value%2 == 1:
				record.Ack(kgo.AckReject)
			case mode == "odd" || mode == "explicit" || mode == "reject":
				record.Ack(kgo.AckAccept)
			case mode == "keep":
				record.Ack(kgo.AckRelease)
			}
		}
		if mode != "implicit" && mode != "keep" {
			if err := client.FlushAcks(ctx); err != nil {
				return err
			}
		}
	}
	return refused
}
