// The op "secured": franz-go as a user of a secured node. It writes, then reads back what it wrote.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type securedRequest struct {
	Protocol   string `json:"security_protocol"`
	Authority  string `json:"authority"`
	Mechanism  string `json:"mechanism"`
	User       string `json:"user"`
	Password   string `json:"password"`
	DurationMs int64  `json:"duration_ms"`
}

// securedAnswer has what the client read back, or the error that it gave. Connections has how many it had opened
// when its first record was written, and when its last one was.
type securedAnswer struct {
	Values      []string `json:"values"`
	Connections [2]int64 `json:"connections"`
	Error       string   `json:"error"`
}

type connects struct{ count atomic.Int64 }

func (c *connects) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	c.count.Add(1)
}

func (r *request) mechanism() sasl.Mechanism {
	login := scram.Auth{User: r.Secured.User, Pass: r.Secured.Password}
	switch r.Secured.Mechanism {
	case "SCRAM-SHA-256":
		return login.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return login.AsSha512Mechanism()
	}
	return plain.Auth{User: r.Secured.User, Pass: r.Secured.Password}.AsMechanism()
}

func secured(ctx context.Context, r request) (answer securedAnswer) {
	if err := answer.fill(ctx, r); err != nil {
		answer.Error = name(err)
	}
	return answer
}

func (a *securedAnswer) fill(ctx context.Context, r request) error {
	made := &connects{}
	options := []kgo.Opt{
		kgo.SeedBrokers(r.Bootstrap),
		kgo.SASL(r.mechanism()),
		kgo.ProducerLinger(0),
		kgo.WithHooks(made),
	}
	if r.Secured.Protocol == "SASL_SSL" {
		pem, err := os.ReadFile(r.Secured.Authority)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(pem) {
			return errors.New("no certificate in " + r.Secured.Authority)
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(r.Secured.DurationMs) * time.Millisecond)
	count := 0
	for ; count < 3 || time.Now().Before(end); count++ {
		record := &kgo.Record{Topic: r.Topic, Value: []byte(strconv.Itoa(count))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		if count == 0 {
			a.Connections[0] = made.count.Load()
		}
		a.Connections[1] = made.count.Load()
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {0: kgo.NewOffset().AtStart()}})
	for len(a.Values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { a.Values = append(a.Values, string(record.Value)) })
	}
	return nil
}
