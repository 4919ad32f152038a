// sarama, as its users set it up: a producer and a consumer group that work for long.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A broker that is away is tried for as long as Kafka's own producer tries: two minutes.
const (
	sendAgain      = 1200
	sendAgainAfter = 100 * time.Millisecond
)

// What a member was handed, and what it owns.
type saramaMember struct {
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	ended   chan struct{}
	lock    sync.Mutex
	owned   map[string][]int32
	records []answer
}

type saramaClient struct {
	servers []string
	sender  sarama.AsyncProducer
	member  *saramaMember
}

// What is told with the answer to a record.
type sentRecord struct {
	to     *sending
	number int64
	at     time.Time
}

func newSarama(server string) worker {
	return &saramaClient{servers: strings.Split(server, ",")}
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	return config
}

func (s *saramaClient) send(c *command) []answer {
	if s.sender == nil {
		config := saramaConfig()
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Idempotent = *c.Idempotent
		config.Producer.Partitioner = sarama.NewManualPartitioner
		config.Producer.Return.Successes = true
		config.Producer.Retry.Max, config.Producer.Retry.Backoff = sendAgain, sendAgainAfter
		config.Net.MaxOpenRequests = 1 // asked for by idempotence; without it, what keeps the order
		made, err := sarama.NewAsyncProducer(s.servers, config)
		must(err)
		s.sender = made
		go reportSuccesses(made)
		go reportErrors(made)
	}
	one := newSending(c)
	for one.goesOn() {
		one.due(func(number int64, partition int32, value string) {
			s.sender.Input() <- &sarama.ProducerMessage{
				Topic: c.Topic, Partition: partition, Value: sarama.StringEncoder(value),
				Metadata: sentRecord{one, number, time.Now()},
			}
		})
	}
	return one.answers()
}

func reportSuccesses(producer sarama.AsyncProducer) {
	for done := range producer.Successes() {
		sent := done.Metadata.(sentRecord)
		sent.to.done(sent.number, done.Partition, done.Offset, sent.at, nil)
	}
}

func reportErrors(producer sarama.AsyncProducer) {
	for failed := range producer.Errors() {
		sent := failed.Msg.Metadata.(sentRecord)
		sent.to.done(sent.number, 0, 0, sent.at, failed.Err)
	}
}

func (s *saramaClient) join(c *command) {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 30 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	group, err := sarama.NewConsumerGroup(s.servers, c.Group, config)
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	member := &saramaMember{group: group, stop: stop, ended: make(chan struct{})}
	s.member = member
	go func() {
		defer close(member.ended)
		member.consume(ctx, c.Topic)
	}()
}

// Consumes session after session. A coordinator that stops ends a session with an error of its connection; users
// are told to consume again then, without an end. Standard error says why it had to.
func (m *saramaMember) consume(ctx context.Context, topic string) {
	for ctx.Err() == nil {
		if err := m.group.Consume(ctx, []string{topic}, m); err != nil {
			fmt.Fprintln(os.Stderr, "the group:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = session.Claims()
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owned = nil
	return nil
}

// Commits as a user does: what a rebalance takes away before its commit is handed out again.
func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			session.Commit()
			m.lock.Lock()
			m.records = append(m.records, place{message.Topic, message.Partition}.line(answer{
				"offset": message.Offset, "value": text(message.Value),
			}))
			m.lock.Unlock()
		}
	}
}

func (s *saramaClient) poll(c *command) []answer {
	deadline := time.Now().Add(time.Duration(c.Ms) * time.Millisecond)
	for time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		if told := s.member.take(false); told != nil {
			return told
		}
	}
	return s.member.take(true)
}

// What was handed out since the last time; nothing if there is nothing, unless that is the answer.
func (m *saramaMember) take(evenNothing bool) []answer {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.records) == 0 && !evenNothing {
		return nil
	}
	assignment := []answer{}
	for topic, partitions := range m.owned {
		for _, partition := range partitions {
			assignment = append(assignment, place{topic, partition}.line(nil))
		}
	}
	records := m.records
	m.records = []answer{}
	if records == nil {
		records = []answer{}
	}
	return []answer{{"assignment": assignment, "records": records}}
}

func (s *saramaClient) leave() {
	s.member.stop()
	<-s.member.ended
	must(s.member.group.Close())
}
