package main

// Consume, transform, produce with kgo.GroupTransactSession: a copier as
// compat_tests/exactly_once/copiers/task.py describes it.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type task struct {
	Bootstrap            string `json:"bootstrap"`
	Source               string `json:"source"`
	Target               string `json:"target"`
	Group                string `json:"group"`
	TransactionalID      string `json:"transactional_id"`
	Protocol             string `json:"protocol"`
	SessionTimeoutMs     int64  `json:"session_timeout_ms"`
	TransactionTimeoutMs int64  `json:"transaction_timeout_ms"`
	AtMost               int    `json:"at_most"`
}

func say(fields map[string]any) {
	line, _ := json.Marshal(fields)
	fmt.Println(string(line))
}

func runCopier(argument string) error {
	var t task
	if err := json.Unmarshal([]byte(argument), &t); err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(t.Bootstrap, ",")...),
		kgo.ConsumerGroup(t.Group),
		kgo.ConsumeTopics(t.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.TransactionalID(t.TransactionalID),
		kgo.TransactionTimeout(time.Duration(t.TransactionTimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			say(map[string]any{"did": "assigned", "partitions": append([]int32{}, partitions[t.Source]...)})
		}),
	}
	if t.Protocol == "consumer" {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	} else {
		options = append(options,
			kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.SessionTimeout(time.Duration(t.SessionTimeoutMs)*time.Millisecond),
			kgo.HeartbeatInterval(200*time.Millisecond),
		)
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for {
		fetches := session.PollRecords(ctx, t.AtMost)
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := make(chan error, len(records))
		for _, one := range records {
			copied := &kgo.Record{Topic: t.Target, Partition: one.Partition, Value: append(one.Value, '!')}
			session.Produce(ctx, copied, func(_ *kgo.Record, err error) { failed <- err })
		}
		commit := kgo.TransactionEndTry(rand.Intn(4) != 0)
		for range records {
			if err := <-failed; err != nil {
				say(map[string]any{"did": "failed", "error": err.Error()})
				commit = kgo.TryAbort
			}
		}
		committed, err := session.End(ctx, commit)
		if err != nil {
			return err
		}
		if committed {
			say(map[string]any{"did": "committed", "records": len(records)})
		} else {
			say(map[string]any{"did": "aborted"})
		}
	}
}

func copier(argument string) {
	if err := runCopier(argument); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
