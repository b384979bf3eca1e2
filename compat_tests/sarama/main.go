// sarama behind the line protocol of compat_tests/remote.py: what a group needs (produce, join, records, leave).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// record is [key, value, [[header, value]], timestamp_ms, partition, offset]; []byte is base64 or null in JSON.
type record struct {
	key, value  []byte
	headers     [][2]json.RawMessage
	timestampMs int64
	partition   int32
}

func (r *record) UnmarshalJSON(data []byte) error {
	row := []any{&r.key, &r.value, &r.headers, &r.timestampMs, &r.partition}
	return json.Unmarshal(data, &row)
}

type request struct {
	ID               int      `json:"id"`
	Op               string   `json:"op"`
	Bootstrap        string   `json:"bootstrap"`
	Topic            string   `json:"topic"`
	Group            string   `json:"group"`
	Compression      string   `json:"compression"`
	Idempotent       bool     `json:"idempotent"`
	Records          []record `json:"records"`
	Member           int      `json:"member"`
	From             int      `json:"from"`
	SessionTimeoutMs int64    `json:"session_timeout_ms"`

	Secured securedRequest `json:"secured"`
}

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Metadata.RefreshFrequency = time.Second
	c.Metadata.Retry.Max = 100
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	return c
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(r request) (any, error) {
	c := config()
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Compression = codecs[r.Compression]
	c.Producer.Idempotent = r.Idempotent
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{r.Bootstrap}, c)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(r.Records))
	for i, one := range r.Records {
		message := &sarama.ProducerMessage{
			Topic: r.Topic, Partition: one.partition, Key: encoder(one.key), Value: encoder(one.value),
			Timestamp: time.UnixMilli(one.timestampMs),
		}
		for _, pair := range one.headers {
			var name string
			var value []byte
			if err := errors.Join(json.Unmarshal(pair[0], &name), json.Unmarshal(pair[1], &value)); err != nil {
				return nil, err
			}
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(name), Value: value})
		}
		messages[i] = message
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	placed := make([][2]int64, len(messages))
	for i, message := range messages {
		placed[i] = [2]int64{int64(message.Partition), message.Offset}
	}
	return placed, nil
}

// member consumes on goroutines of its own; it commits at the end of every session, which is when partitions go.
type member struct {
	mutex    sync.Mutex
	topic    string
	group    sarama.ConsumerGroup
	assigned []int32
	rows     [][]any
	failure  error
	cancel   context.CancelFunc
	done     chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.assigned = append([]int32{}, session.Claims()[m.topic]...)
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.assigned = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			headers := [][2]any{}
			for _, header := range one.Headers {
				headers = append(headers, [2]any{string(header.Key), header.Value})
			}
			m.mutex.Lock()
			m.rows = append(m.rows,
				[]any{one.Key, one.Value, headers, one.Timestamp.UnixMilli(), one.Partition, one.Offset})
			m.mutex.Unlock()
			session.MarkMessage(one, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) fail(err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.failure == nil {
		m.failure = err
	}
}

func join(r request) (*member, error) {
	c := config()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.Group.Session.Timeout = time.Duration(r.SessionTimeoutMs) * time.Millisecond
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	group, err := sarama.NewConsumerGroup([]string{r.Bootstrap}, r.Group, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{topic: r.Topic, group: group, rows: [][]any{}, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{r.Topic}, m); err != nil && ctx.Err() == nil {
				m.fail(err)
			}
		}
	}()
	return m, nil
}

func (m *member) leave() error {
	m.cancel()
	<-m.done
	if err := m.group.Close(); err != nil {
		m.fail(err)
	}
	return m.failure
}

var members []*member

func handle(r request) (any, error) {
	switch r.Op {
	case "produce":
		return produce(r)
	case "secured":
		return secured(r), nil
	case "join":
		m, err := join(r)
		members = append(members, m)
		return len(members) - 1, err
	}
	m := members[r.Member]
	if r.Op == "leave" {
		return nil, m.leave()
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch r.Op {
	case "partitions":
		numbers := append([]int32{}, m.assigned...)
		sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
		return numbers, m.failure
	case "records":
		return m.rows[r.From:], m.failure
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		answer := map[string]any{}
		if err := json.Unmarshal(line, &r); err != nil {
			answer["error"] = err.Error()
		} else if result, err := handle(r); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["result"] = result
		}
		answer["id"] = r.ID
		if err := out.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
}
