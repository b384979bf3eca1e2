// The op "secured": sarama as a user of a secured node. It writes, then reads back what it wrote.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
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

// conversation is SCRAM by xdg-go/scram: sarama leaves the choice to its user.
type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// dialer counts the connections that it opens.
type dialer struct {
	net.Dialer
	count atomic.Int64
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.count.Add(1)
	return d.Dialer.Dial(network, address)
}

func (r *request) config(made *dialer) (*sarama.Config, error) {
	c := config()
	c.Metadata.Retry.Max = 3
	c.Producer.Return.Successes = true
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = made
	c.Net.SASL.Enable = true
	c.Net.SASL.Mechanism = sarama.SASLMechanism(r.Secured.Mechanism)
	c.Net.SASL.User = r.Secured.User
	c.Net.SASL.Password = r.Secured.Password
	hashes := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}
	if hash := hashes[r.Secured.Mechanism]; hash != nil {
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	}
	if r.Secured.Protocol == "SASL_SSL" {
		pem, err := os.ReadFile(r.Secured.Authority)
		if err != nil {
			return nil, err
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate in " + r.Secured.Authority)
		}
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = &tls.Config{RootCAs: trusted, ServerName: "localhost"}
	}
	return c, nil
}

func secured(r request) (answer securedAnswer) {
	if err := answer.fill(r); err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func (a *securedAnswer) fill(r request) error {
	made := &dialer{}
	c, err := r.config(made)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{r.Bootstrap}, c)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	end := time.Now().Add(time.Duration(r.Secured.DurationMs) * time.Millisecond)
	count := 0
	for ; count < 3 || time.Now().Before(end); count++ {
		value := sarama.StringEncoder(strconv.Itoa(count))
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: r.Topic, Value: value}); err != nil {
			return err
		}
		if count == 0 {
			a.Connections[0] = made.count.Load()
		}
		a.Connections[1] = made.count.Load()
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(r.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	for message := range partition.Messages() {
		if a.Values = append(a.Values, string(message.Value)); len(a.Values) == count {
			break
		}
	}
	return nil
}
