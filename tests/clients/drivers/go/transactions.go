// Transactions of franz-go: producers by name, and copies of records with their offsets.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A producer with a transactional id, kept between commands.
type transactional struct {
	id     string
	client *kgo.Client
	begun  bool
}

func (f *franz) transaction(c *command) answer {
	one := f.kept[c.As]
	found, err := f.transact(one, c)
	if err == nil {
		return found
	}
	line := answer{"error": named(err), "abort": nil}
	if one != nil && one.begun { // as applications do after an error
		ctx, cancel := bounded(60)
		defer cancel()
		if err := one.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
			line["abort"] = named(err)
		}
		one.begun = false
	}
	return line
}

// An error as the protocol writes it, by Kafka's own name of it.
func named(err error) answer {
	var known *kerr.Error
	if errors.As(err, &known) {
		return answer{"code": known.Code, "name": known.Message, "message": err.Error()}
	}
	return failure(nil, err)
}

func (f *franz) transact(one *transactional, c *command) (answer, error) {
	ctx, cancel := bounded(60)
	defer cancel()
	switch c.What {
	case "open":
		made := f.open(kgo.TransactionalID(c.Id), kgo.TransactionTimeout(time.Minute),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		f.kept[c.As] = &transactional{id: c.Id, client: made}
		return answer{}, initialize(ctx, made)
	case "write":
		return answer{}, one.write(ctx, c)
	case "copy":
		return f.copy(ctx, one, c)
	default:
		one.client.Close()
		delete(f.kept, c.As)
		return answer{}, nil
	}
}

// By itself the client asks for its id with the first record, and again as long as what was open is being aborted.
func initialize(ctx context.Context, client *kgo.Client) error {
	for {
		_, _, err := client.ProducerID(ctx)
		if !errors.Is(err, kerr.ConcurrentTransactions) || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (t *transactional) write(ctx context.Context, c *command) error {
	if !t.begun {
		if err := t.client.BeginTransaction(); err != nil {
			return err
		}
		t.begun = true
	}
	var all []*kgo.Record
	for _, batch := range c.Batches {
		for _, one := range batch.Records {
			made := &kgo.Record{Topic: batch.Topic, Partition: batch.Partition, Value: raw(one.Value)}
			all = append(all, made)
		}
	}
	if err := send(ctx, t.client, all); err != nil {
		return err
	}
	if c.End == "" {
		return nil
	}
	err := t.client.EndTransaction(ctx, kgo.TransactionEndTry(c.End == "commit"))
	t.begun = t.begun && err != nil
	return err
}

// The first error of any record.
func send(ctx context.Context, client *kgo.Client, all []*kgo.Record) error {
	var lock sync.Mutex
	var wait sync.WaitGroup
	var first error
	for _, one := range all {
		wait.Add(1)
		client.Produce(ctx, one, func(_ *kgo.Record, err error) {
			defer wait.Done()
			lock.Lock()
			defer lock.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	wait.Wait()
	return first
}

// The client's way is one session, that is a member and a producer, for as long as it copies.
func (f *franz) copy(ctx context.Context, one *transactional, c *command) (answer, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(f.server, ",")...), kgo.TransactionalID(one.id), kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	var taken []*kgo.Record
	read := [][2]int64{}
	for len(taken) < c.Count {
		fetches := session.PollRecords(ctx, c.Count-len(taken))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(taken), c.Count, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			value := append(append([]byte{}, record.Value...), " copied"...)
			taken = append(taken, &kgo.Record{Topic: c.To, Partition: record.Partition, Value: value})
			read = append(read, [2]int64{int64(record.Partition), record.Offset})
		})
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	if err := send(ctx, session.Client(), taken); err != nil {
		return nil, err
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(c.End == "commit"))
	if err == nil && committed != (c.End == "commit") {
		err = errors.New("it was aborted: the group was rebalanced")
	}
	return answer{"read": read}, err
}
