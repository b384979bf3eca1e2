// franz-go behind the line protocol of compat_tests/remote.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

// record is [key, value, [[header, value]], timestamp_ms, partition, offset]; []byte is base64 or null in JSON.
type record struct {
	key, value  []byte
	headers     []kgo.RecordHeader
	timestampMs int64
	partition   int32
	offset      int64
}

func (r *record) UnmarshalJSON(data []byte) error {
	var headers [][2]json.RawMessage
	row := []any{&r.key, &r.value, &headers, &r.timestampMs, &r.partition}
	if err := json.Unmarshal(data, &row); err != nil {
		return err
	}
	for _, pair := range headers {
		var header kgo.RecordHeader
		if err := json.Unmarshal(pair[0], &header.Key); err != nil {
			return err
		}
		if err := json.Unmarshal(pair[1], &header.Value); err != nil {
			return err
		}
		r.headers = append(r.headers, header)
	}
	return nil
}

func row(r *kgo.Record) []any {
	headers := [][2]any{}
	for _, header := range r.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return []any{r.Key, r.Value, headers, r.Timestamp.UnixMilli(), r.Partition, r.Offset}
}

type request struct {
	ID              int      `json:"id"`
	Op              string   `json:"op"`
	Bootstrap       string   `json:"bootstrap"`
	Topic           string   `json:"topic"`
	Group           string   `json:"group"`
	Compression     string   `json:"compression"`
	Idempotent      bool     `json:"idempotent"`
	MaxRequestBytes int32    `json:"max_request_bytes"`
	Records         []record `json:"records"`
	FromTimeMs      *int64   `json:"from_time_ms"`
	Member          int      `json:"member"`
	From            int      `json:"from"`
	Protocol        string   `json:"protocol"`
	Pattern         string   `json:"pattern"`
	Instance        string   `json:"instance"`
	Assignor        string   `json:"assignor"`
	MayEnd          string   `json:"may_end"`

	SessionTimeoutMs int64         `json:"session_timeout_ms"`
	TransactionalID  string        `json:"transactional_id"`
	Transactions     []transaction `json:"transactions"`
	Committed        bool          `json:"committed"`

	Secured securedRequest `json:"secured"`
}

// transaction is [commit, records].
type transaction struct {
	commit  bool
	records []record
}

func (t *transaction) UnmarshalJSON(data []byte) error {
	row := []any{&t.commit, &t.records}
	return json.Unmarshal(data, &row)
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func produce(ctx context.Context, r request) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(r.Bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[r.Compression]),
		kgo.ProducerBatchMaxBytes(r.MaxRequestBytes),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(r.Records))
	for i, one := range r.Records {
		records[i] = &kgo.Record{
			Topic: r.Topic, Partition: one.partition, Key: one.key, Value: one.value,
			Headers: one.headers, Timestamp: time.UnixMilli(one.timestampMs),
		}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	placed := make([][2]int64, len(records))
	for i, one := range records {
		placed[i] = [2]int64{int64(one.Partition), one.Offset}
	}
	return placed, nil
}

func transact(ctx context.Context, r request) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(r.Bootstrap),
		kgo.TransactionalID(r.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, t := range r.Transactions {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		records := make([]*kgo.Record, len(t.records))
		for i, one := range t.records {
			records[i] = &kgo.Record{
				Topic: r.Topic, Partition: one.partition, Key: one.key, Value: one.value,
				Timestamp: time.UnixMilli(one.timestampMs),
			}
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(t.commit)); err != nil {
			return err
		}
	}
	return nil
}

func consume(ctx context.Context, r request) (any, error) {
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(r.Bootstrap),
		kgo.FetchIsolationLevel(isolation),
		// Markers of transactions may be the last records: they are counted and left out.
		kgo.KeepControlRecords(),
		kgo.FetchMaxPartitionBytes(12<<20),
		kgo.FetchMaxWait(20*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	list := admin.ListEndOffsets
	if r.Committed {
		list = admin.ListCommittedOffsets
	}
	ends, err := list(ctx, r.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	var starts kadm.ListedOffsets
	if r.FromTimeMs != nil {
		starts, err = admin.ListOffsetsAfterMilli(ctx, *r.FromTimeMs, r.Topic)
	} else {
		starts, err = admin.ListStartOffsets(ctx, r.Topic)
	}
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	assigned := map[int32]kgo.Offset{}
	starts.Each(func(start kadm.ListedOffset) {
		end, _ := ends.Lookup(r.Topic, start.Partition)
		if start.Offset < end.Offset {
			left[start.Partition] = end.Offset
			assigned[start.Partition] = kgo.NewOffset().At(start.Offset)
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: assigned})
	rows := [][]any{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			end, open := left[one.Partition]
			if !open {
				return
			}
			if !one.Attrs.IsControl() {
				rows = append(rows, row(one))
			}
			if one.Offset+1 >= end {
				delete(left, one.Partition)
			}
		})
	}
	return rows, nil
}

type place struct {
	topic     string
	partition int32
}

// member polls on a goroutine of its own; it commits before partitions are taken away and when it leaves.
type member struct {
	mutex    sync.Mutex
	client   *kgo.Client
	assigned map[place]bool
	rows     [][]any
	failure  error
	cancel   context.CancelFunc
	done     chan struct{}
}

func (m *member) assign(partitions map[string][]int32, is bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if is {
				m.assigned[place{topic, number}] = true
			} else {
				delete(m.assigned, place{topic, number})
			}
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

// sessionEnded is true for the news that a member had no session any more, after which the client joins again by itself.
func sessionEnded(err error) bool {
	var session *kgo.ErrGroupSession
	return errors.As(err, &session) &&
		(errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound))
}

func join(r request) (*member, error) {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{assigned: map[place]bool{}, rows: [][]any{}, cancel: cancel, done: make(chan struct{})}
	options := []kgo.Opt{
		kgo.SeedBrokers(r.Bootstrap),
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(r.SessionTimeoutMs) * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.assign(partitions, true)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				m.fail(err)
			}
			m.assign(partitions, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.assign(partitions, false)
		}),
	}
	if r.Pattern != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(r.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(r.Topic))
	}
	if r.Instance != "" {
		options = append(options, kgo.InstanceID(r.Instance))
	}
	if r.Protocol == "consumer" {
		balancer := kgo.StickyBalancer()
		if r.Assignor == "range" {
			balancer = kgo.RangeBalancer()
		}
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(balancer))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	m.client = client
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			for _, failed := range fetches.Errors() {
				if r.MayEnd != "" && sessionEnded(failed.Err) {
					continue
				}
				if !errors.Is(failed.Err, context.Canceled) {
					m.fail(failed.Err)
				}
			}
			m.mutex.Lock()
			fetches.EachRecord(func(one *kgo.Record) { m.rows = append(m.rows, row(one)) })
			m.mutex.Unlock()
			client.AllowRebalance()
		}
	}()
	return m, nil
}

func (m *member) leave(ctx context.Context) error {
	m.cancel()
	<-m.done
	if err := m.client.CommitUncommittedOffsets(ctx); err != nil {
		m.fail(err)
	}
	m.client.CloseAllowingRebalance()
	return m.failure
}

var members []*member

func handle(r request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch r.Op {
	case "produce":
		return produce(ctx, r)
	case "transact":
		return nil, transact(ctx, r)
	case "consume":
		return consume(ctx, r)
	case "secured":
		return secured(ctx, r), nil
	case "join":
		m, err := join(r)
		members = append(members, m)
		return len(members) - 1, err
	}
	m := members[r.Member]
	if r.Op == "leave" {
		return nil, m.leave(ctx)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch r.Op {
	case "partitions":
		numbers := []int{}
		for one := range m.assigned {
			numbers = append(numbers, int(one.partition))
		}
		sort.Ints(numbers)
		return numbers, m.failure
	case "assignment":
		places := [][2]any{}
		for one := range m.assigned {
			places = append(places, [2]any{one.topic, one.partition})
		}
		return places, m.failure
	case "records":
		return m.rows[r.From:], m.failure
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "copy" {
		copier(os.Args[2])
		return
	}
	if len(os.Args) == 7 && os.Args[1] == "share" {
		if err := shareMember(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
			fmt.Fprintln(os.Stderr, name(err))
			os.Exit(1)
		}
		return
	}
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
			answer["error"] = name(err)
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

// name is Kafka's name of the error where the broker gave one.
func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return strings.ToUpper(known.Message)
	}
	return err.Error()
}
